#include "sim/reference.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "engine_adapters.h"
#include "mlc_native/detail/page.h"
#include "observe/metrics.h"
#include "request/input_row_ids.h"
#include "sim/embeddings.h"
#include "sim/input_rows.h"

namespace mlc_native::sim {
namespace {

using testing::FakeModel;
using testing::RequestHistory;
using testing::SequenceHistory;

// One is the beginning of the other.
template <typename T>
bool Agree(const std::vector<T>& a, const std::vector<T>& b) {
  const size_t length = std::min(a.size(), b.size());
  return std::equal(a.begin(), a.begin() + length, b.begin());
}

bool EndedByItself(const SequenceHistory& sequence) {
  return sequence.finish_reason == FinishReason::kStop ||
         sequence.finish_reason == FinishReason::kLength;
}

bool AllEndedByThemselves(const RequestHistory& history) {
  return std::all_of(history.sequences.begin(), history.sequences.end(), EndedByItself);
}

bool HasError(const RequestHistory& history) {
  return std::any_of(
      history.sequences.begin(), history.sequences.end(),
      [](const SequenceHistory& s) { return s.finish_reason == FinishReason::kError; });
}

std::string TokensText(const std::vector<int32_t>& tokens) {
  std::string text;
  for (int32_t token : tokens) text += std::to_string(token) + ' ';
  return text;
}

std::string NumbersText(const std::vector<float>& numbers) {
  std::string text;
  for (const float number : numbers) text += std::to_string(number) + ' ';
  return text;
}

// Whether `text` is in the language of testing/fake_grammar.h, or begins like something in it.
bool Matches(std::string grammar, const std::string& text, bool complete) {
  if (grammar.starts_with('~')) grammar.erase(0, 1);
  if (grammar == "*") return true;
  std::istringstream alternatives(grammar);
  for (std::string answer; std::getline(alternatives, answer, '|');) {
    if (answer.back() == '*') {
      const char repeated = answer[answer.size() - 2];
      answer.resize(answer.size() - 2);
      while (answer.size() < text.size()) answer += repeated;
    }
    if (complete ? text == answer : answer.starts_with(text)) return true;
  }
  return false;
}

// Whether what was guessed for a request is what it and the engine let it have.
bool KeepsToDraftLength(const Request& request, const nlohmann::json& extra) {
  const int64_t num_drafts = extra.value("num_drafts", int64_t{0});
  const int64_t num_tokens = extra.value("draft_tokens", int64_t{0});
  const GenerationConfig& config = request.generation_cfg;
  if (!config.speculative) return num_drafts == 0;
  const int64_t own = config.spec_draft_length.value_or(0);
  return num_tokens <= num_drafts * (own > 0 ? own : kMaxDraftTokens);
}

EngineConfig RoomyConfig(const Scenario& scenario) {
  EngineConfig config = scenario.config;
  config.max_single_sequence_length = scenario.max_sequence_length();
  const int64_t sequences = *config.max_num_sequence + 1;
  config.max_total_sequence_length = sequences * (scenario.max_sequence_length() + 2 * kKvPageSize);
  config.prefill_chunk_size = std::max<int64_t>(*config.prefill_chunk_size, 1024);
  config.prefix_cache_mode = PrefixCacheMode::kDisable;
  config.timeout_s.reset();
  config.queue_timeout_s.reset();
  config.max_queue_length.reset();
  config.speculative_mode = SpeculativeMode::kDisable;
  config.spec_draft_length = 0;
  config.grammar_step_budget_s = config.grammar_time_limit_s = 3600;  // nothing is slow
  return config;
}

}  // namespace

Reference::Reference(const Scenario& scenario, testing::HistoryChecker::FailureSink fail)
    : scenario_(scenario), fail_(fail), history_(std::move(fail)), can_spell_(CanSpell()) {
  ModelDefaults defaults;
  defaults.eos_token_ids = scenario.eos_token_ids;
  EngineOptions options;
  options.request_stream_callback = [this](std::vector<RequestStreamOutput> outputs) {
    history_.Receive(outputs);
  };
  testing::FakeModelOptions model = scenario.model;
  model.run_ahead = false;
  engine_ = Engine::FromModel(std::make_unique<FakeModel>(std::move(model)), RoomyConfig(scenario),
                              std::move(defaults), scenario.vocabulary.table, options);
}

const RequestHistory& Reference::AnswerAlone(const Request& request) {
  history_.Forget(request.id);
  history_.Add(request);
  auto patient = std::make_shared<Request>(request);
  patient->generation_cfg.timeout_s.reset();
  patient->generation_cfg.queue_timeout_s.reset();
  patient->generation_cfg.speculative = false;
  patient->generation_cfg.debug_config.pinned_system_prompt = false;  // there is no cache here
  UseOwnAdapter(patient.get());
  engine_->row_ids()->ResolveFor(patient.get());
  engine_->AddRequest(std::move(patient));
  while (!engine_->Empty()) engine_->Step();
  return history_.of(request.id);
}

// Of the reference's engine, where an adapter has the name of its folder.
void Reference::UseOwnAdapter(Request* request) {
  if (request->adapter == nullptr) return;
  const std::string folder = request->adapter->path;
  request->generation_cfg.adapter = folder;
  if (adapters_.insert(folder).second) engine_->LoadAdapter(folder, folder);
  engine_->adapters()->ResolveFor(request);
}

// Whether every letter that grammars are made of can be said, so that no answer is a dead end.
bool Reference::CanSpell() const {
  if (scenario_.vocabulary.table == nullptr) return false;
  const std::vector<int32_t>& eos = scenario_.eos_token_ids;
  std::set<std::string_view> texts;
  for (int32_t token = 0; token < scenario_.model.vocab_size; ++token) {
    const bool ends = std::find(eos.begin(), eos.end(), token) != eos.end();
    if (!ends) texts.insert(scenario_.vocabulary.table->text_bytes(token));
  }
  return texts.contains("a") && texts.contains("b") && texts.contains("c") && texts.contains(" ");
}

bool Reference::Check(const Request& request, const RequestHistory& answer) {
  if (answer.is_special) return false;
  if (request.embedding) return CheckEmbedding(request, answer);
  const RequestHistory& alone = AnswerAlone(request);
  if (!Agree(answer.prompt_logprobs, alone.prompt_logprobs)) {
    fail_("request \"" + request.id + "\": other prompt logprobs than alone");
  }
  for (size_t i = 0; i < answer.sequences.size(); ++i) {
    CheckSequence(request, answer.sequences[i], alone.sequences[i]);
    CheckOracle(request, answer.sequences[i]);
    CheckGrammar(request, answer.sequences[i]);
  }
  CheckBranches(request, answer);
  CheckUsage(request, answer, alone);
  const bool fails_alone = HasError(alone);
  CheckFirstAnswer(request, answer.sequences.front());
  return fails_alone;
}

bool Reference::CheckEmbedding(const Request& request, const RequestHistory& answer) {
  const auto fail = [&](const std::string& what) {
    fail_("request \"" + request.id + "\": " + what);
  };
  const std::vector<float> expected = ExpectedEmbedding(scenario_, request);
  const SequenceHistory& sequence = answer.only();
  if (!answer.embedding.empty() && answer.embedding != expected) {
    fail("another embedding than the model's: " + NumbersText(answer.embedding) + "instead of " +
         NumbersText(expected));
  }
  if (!sequence.token_ids.empty() || !sequence.text.empty()) fail("is embedded and has an answer");
  if (!EndedByItself(sequence)) return expected.empty();
  const auto usage = nlohmann::json::parse(*answer.usage);
  const auto& extra = usage["extra"];
  const int64_t cached = extra["cached_tokens"];
  if (usage["prompt_tokens"] != request.prompt_len() || usage["completion_tokens"] != 0) {
    fail("wrong usage: " + *answer.usage);
  }
  if (extra["prefill_tokens"] != request.prompt_len() - cached || cached >= request.prompt_len() ||
      (cached > 0 && request.embeds(Pooling::kMean))) {
    fail("cached rows are not those that are not computed: " + *answer.usage);
  }
  return expected.empty();
}

// The first of several answers is the one that there would be without the others.
void Reference::CheckFirstAnswer(const Request& request, const SequenceHistory& answer) {
  if (request.generation_cfg.n == 1) return;
  Request single = request;
  single.generation_cfg.n = 1;
  CheckSequence(single, answer, AnswerAlone(single).sequences.front());
}

void Reference::CheckSequence(const Request& request, const SequenceHistory& answer,
                              const SequenceHistory& alone) {
  const auto fail = [&](const std::string& what) {
    fail_("request \"" + request.id + "\": " + what + "\n  here:  " + TokensText(answer.token_ids) +
          "\"" + answer.text + "\"\n  alone: " + TokensText(alone.token_ids) + "\"" + alone.text +
          "\"");
  };
  if (!Agree(answer.token_ids, alone.token_ids)) return fail("other tokens than alone");
  if (!Agree(answer.logprobs, alone.logprobs)) return fail("other logprobs than alone");
  const bool alone_may_hold_back = !request.generation_cfg.stop_strs.empty();
  if (answer.token_ids.size() > alone.token_ids.size() && EndedByItself(alone) &&
      !alone_may_hold_back) {
    return fail("more tokens than alone");
  }
  // Alone, another branch may have ended the whole request with an error before this one was done.
  if (!EndedByItself(answer) || !EndedByItself(alone)) return;
  if (answer.finish_reason != alone.finish_reason) return fail("another finish reason than alone");
  if (answer.token_ids.size() != alone.token_ids.size()) return fail("fewer tokens than alone");
  if (answer.text != alone.text) return fail("another text than alone");
}

bool Reference::IsStopToken(const Request& request, int32_t token) const {
  const auto contains = [token](const std::vector<int32_t>& tokens) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  };
  const GenerationConfig& config = request.generation_cfg;
  return contains(config.stop_token_ids) ||
         (!config.debug_config.ignore_eos && contains(scenario_.eos_token_ids));
}

// An answer contains only what its grammar allows, and one that stops is complete.
void Reference::CheckGrammar(const Request& request, const SequenceHistory& answer) {
  const GenerationConfig& config = request.generation_cfg;
  if (request.grammar == nullptr) return;
  // A stop token in which a stop string begins is delivered up to there.
  if (!answer.token_ids.empty() && IsStopToken(request, answer.token_ids.back())) return;
  const bool complete = answer.finish_reason == FinishReason::kStop && config.stop_strs.empty() &&
                        config.stop_token_ids.empty() && can_spell_;
  if (Matches(config.response_format.text, answer.text, complete)) return;
  fail_("request \"" + request.id + "\": \"" + answer.text + "\" does not match " +
        config.response_format.text);
}

// Greedy without stop strings: tokens and end follow from the model alone.
void Reference::CheckOracle(const Request& request, const SequenceHistory& answer) {
  const GenerationConfig& config = request.generation_cfg;
  if (config.temperature > 0 || request.grammar != nullptr || !config.stop_strs.empty() ||
      config.include_stop_str_in_output || !config.allowed_token_ids.empty() ||
      !config.logit_bias.empty() || !config.bad_words.empty() || config.no_repeat_ngram_size > 0 ||
      config.min_tokens > 0 || config.frequency_penalty != 0 || config.presence_penalty != 0 ||
      config.repetition_penalty != 1) {
    return;
  }
  std::vector<int32_t> history = PromptOf(request);
  std::vector<int32_t> expected;
  const int64_t adapter = request.adapter != nullptr ? request.adapter->weights->rank() : 0;
  FinishReason reason = FinishReason::kLength;
  const int64_t limit = scenario_.max_sequence_length();
  // The token after the last that fits is computed and delivered, too: a prompt of the full length
  // gets one token.
  while (config.max_tokens != std::ssize(expected) &&
         (std::ssize(history) < limit || expected.empty())) {
    const int32_t token = FakeModel::NextToken(scenario_.model, history, adapter);
    if (IsStopToken(request, token)) {
      reason = FinishReason::kStop;
      break;
    }
    expected.push_back(token);
    history.push_back(token);
  }
  if (!EndedByItself(answer)
          ? Agree(answer.token_ids, expected) && answer.token_ids.size() <= expected.size()
          : answer.token_ids == expected && answer.finish_reason == reason) {
    return;
  }
  fail_("request \"" + request.id + "\" does not answer like the model\n  here:  " +
        TokensText(answer.token_ids) + "\n  model: " + TokensText(expected));
}

// Nothing tells the branches of a greedy request apart but when they were ended.
void Reference::CheckBranches(const Request& request, const RequestHistory& answer) {
  if (request.generation_cfg.temperature > 0) return;
  const SequenceHistory& first = answer.sequences.front();
  for (const SequenceHistory& sequence : answer.sequences) {
    const bool both_complete = EndedByItself(first) && EndedByItself(sequence);
    if (both_complete ? sequence.token_ids == first.token_ids
                      : Agree(sequence.token_ids, first.token_ids)) {
      continue;
    }
    fail_("request \"" + request.id + "\": greedy branches differ\n  " +
          TokensText(first.token_ids) + "\n  " + TokensText(sequence.token_ids));
  }
}

void Reference::CheckUsage(const Request& request, const RequestHistory& answer,
                           const RequestHistory& alone) {
  const auto usage = nlohmann::json::parse(*answer.usage);
  const auto fail = [&](const char* what) {
    fail_("request \"" + request.id + "\": " + what + ": " + *answer.usage);
  };
  int64_t delivered = 0;
  bool exact = true;  // every token that was sampled was delivered
  const bool complete = AllEndedByThemselves(answer);
  for (const SequenceHistory& sequence : answer.sequences) {
    delivered += std::ssize(sequence.token_ids);
    exact = exact && sequence.finish_reason == FinishReason::kLength;
  }
  if (usage["prompt_tokens"] != request.prompt_len()) fail("wrong prompt_tokens");
  const int64_t completion = usage["completion_tokens"];
  // Jump-forward takes back tokens that were delivered already, except where there are logprobs.
  const bool all_count = !request.jumps() || request.generation_cfg.logprobs;
  if (all_count && (completion < delivered || (exact && completion != delivered))) {
    fail("wrong completion_tokens");
  }
  if (complete && AllEndedByThemselves(alone)) {
    const auto usage_alone = nlohmann::json::parse(*alone.usage);
    if (completion != usage_alone["completion_tokens"]) fail("other completion_tokens than alone");
    // What is drawn behind forced text that ends an answer counts, if it is drawn at once.
    if (!request.jumps() &&
        usage["extra"]["decode_tokens"] != usage_alone["extra"]["decode_tokens"]) {
      fail("other decode_tokens than alone");
    }
    if (usage["extra"]["jump_forward_tokens"] != usage_alone["extra"]["jump_forward_tokens"]) {
      fail("other jump_forward_tokens than alone");
    }
  }
  const auto& extra = usage["extra"];
  if (!KeepsToDraftLength(request, extra)) fail("more guesses than it asked for");
  // Nothing is computed for an answer that has nothing to say.
  if (!complete || completion == 0) return;
  const int64_t computed = extra["prefill_tokens"];
  const int64_t cached = extra["cached_tokens"];
  if (computed + cached != request.prompt_len() || cached < 0 || computed < 1) {
    fail("prefill_tokens + cached_tokens is not the prompt");
  }
}

}  // namespace mlc_native::sim
