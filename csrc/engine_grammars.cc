#include "engine_grammars.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "support/error.h"

namespace mlc_native {
namespace {

GrammarLimits LimitsOf(const EngineConfig& config) {
  GrammarLimits limits;
  limits.compile_seconds = config.grammar_compile_timeout_s;
  limits.cache_bytes = config.grammar_cache_bytes;
  limits.max_waiting = config.max_grammar_queue_length;
  return limits;
}

// A string literal of EBNF.
std::string Quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
      quoted += escape;
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string ChoiceGrammar(const std::vector<std::string>& choices) {
  std::string grammar = "root ::= ";
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) grammar += " | ";
    grammar += Quote(choices[i]);
  }
  return grammar;
}

}  // namespace

GrammarSpec ToGrammarSpec(const ResponseFormat& format) {
  switch (format.type) {
    case ResponseFormatType::kJsonSchema:
      return {GrammarKind::kJsonSchema, format.text, format.strict};
    case ResponseFormatType::kRegex:
      return {GrammarKind::kRegex, format.text};
    case ResponseFormatType::kGrammar:
      return {GrammarKind::kEbnf, format.text};
    case ResponseFormatType::kChoice:
      return {GrammarKind::kEbnf, ChoiceGrammar(format.choices)};
    case ResponseFormatType::kStructuralTag:
      return {GrammarKind::kStructuralTag, format.text};
    case ResponseFormatType::kText:
    case ResponseFormatType::kJsonObject:
      break;
  }
  return {GrammarKind::kJsonObject, ""};
}

EngineGrammars::EngineGrammars(Model model, const EngineConfig& config,
                               GrammarCompilerFactory factory, Log log)
    : model_(std::move(model)),
      limits_(LimitsOf(config)),
      has_drafts_(config.speculative_mode != SpeculativeMode::kDisable),
      factory_(std::move(factory)),
      log_(std::move(log)) {}

void EngineGrammars::CompileFor(Request* request, const std::stop_token& stop) {
  const ResponseFormat& format = request->generation_cfg.response_format;
  if (!format.is_constrained()) return;
  if (model_.token_table == nullptr) {
    throw InvalidRequest("response_format",
                         std::string("response_format type \"") + ToString(format.type) +
                             "\" needs a model folder with tokenizer.json; this one has none, so "
                             "tokens have no text");
  }
  request->grammar = Compiler().Compile(ToGrammarSpec(format), stop);
  if (stop.stop_requested()) {  // the grammar may be there, because others wait for it
    request->grammar = nullptr;
    request->is_aborted = true;
    return;
  }
  request->grammar_tokens = model_.token_table;
  const GenerationConfig& generation = request->generation_cfg;
  if (generation.debug_config.grammar_execution_mode == "jump_forward" ||
      (has_drafts_ && generation.speculative)) {
    request->retokenizer = ForcedTextTokens();
  }
}

void EngineGrammars::Check(const Request& request) const {
  if (!request.generation_cfg.response_format.is_constrained() || request.is_aborted) return;
  if (request.grammar == nullptr) {
    throw InvalidRequest("response_format",
                         "The response_format of this request is not compiled: create the request "
                         "with CreateRequest of the engine");
  }
  if (request.grammar_tokens != model_.token_table) {
    throw InvalidRequest("response_format",
                         "The response_format of this request was compiled for a model that is no "
                         "longer loaded: create the request again");
  }
}

int64_t EngineGrammars::num_cached() const {
  const GrammarCompiler* compiler = made_.load();
  return compiler == nullptr ? 0 : compiler->num_cached();
}

int64_t EngineGrammars::cached_bytes() const {
  const GrammarCompiler* compiler = made_.load();
  return compiler == nullptr ? 0 : compiler->cached_bytes();
}

std::shared_ptr<const Retokenizer> EngineGrammars::ForcedTextTokens() {
  const MutexLock lock(mutex_);
  if (!retokenizer_) retokenizer_ = MakeRetokenizer();
  return *retokenizer_;
}

std::shared_ptr<const Retokenizer> EngineGrammars::MakeRetokenizer() const {
  if (model_.tokenizer_json.empty()) return nullptr;
  std::string reason;
  try {
    auto encoder =
        TextEncoder::FromTokenizerJson(model_.tokenizer_json, *model_.token_table, &reason);
    if (encoder) return std::make_shared<Retokenizer>(model_.token_table, std::move(encoder));
  } catch (const LoadError& error) {  // the file is no longer what the model was loaded with
    reason = error.what();
  }
  log_.Write(LogLevel::kWarning,
             "jump-forward decoding is off: " + reason + " is not encoded here");
  return nullptr;
}

GrammarCompiler& EngineGrammars::Compiler() {
  const MutexLock lock(mutex_);
  if (compiler_ == nullptr) {
    GrammarVocab vocab;
    vocab.vocab_size = model_.vocab_size;
    for (int64_t id = 0; id < std::min(model_.token_table->size(), model_.vocab_size); ++id) {
      vocab.token_bytes.emplace_back(model_.token_table->text_bytes(static_cast<int32_t>(id)));
    }
    for (int32_t id : model_.eos_token_ids) {
      if (id >= 0 && id < model_.vocab_size) vocab.stop_token_ids.push_back(id);
    }
    compiler_ = factory_(std::move(vocab), limits_);
    made_.store(compiler_.get());
  }
  return *compiler_;
}

}  // namespace mlc_native
