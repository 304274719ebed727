#include "c_api/model_text.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "model_files/model_files.h"
#include "support/config_fields.h"
#include "support/error.h"
#include "support/json.h"
#include "support/regular_file.h"

namespace mlc_native::c_api {
namespace {

constexpr std::array kSpecialTokens = {"bos_token", "eos_token", "unk_token", "pad_token"};
constexpr uint64_t kMaxTemplateBytes = uint64_t{1} << 20;

// The text of a token, which tokenizer_config.json writes as a text or as an object.
std::optional<std::string> TokenText(const ConfigFields& config, const char* name) {
  const JsonValue* token = config.Find(name);
  if (token != nullptr && token->is_object()) token = token->Find("content");
  if (token == nullptr || !token->is_string()) return std::nullopt;
  return token->AsString();
}

// "chat_template" of a JSON file: a text, or a list of named ones, of which "default" counts.
std::optional<std::string> TemplateIn(const ConfigFields& config) {
  const JsonValue* source = config.Find("chat_template");
  if (source == nullptr) return std::nullopt;
  if (source->is_string()) return source->AsString();
  if (!source->is_array()) return std::nullopt;
  const JsonValue* chosen = nullptr;
  for (const JsonValue& entry : source->AsArray()) {
    const JsonValue* name = entry.Find("name");
    const bool is_default = name != nullptr && name->is_string() && name->AsString() == "default";
    if (chosen == nullptr || is_default) chosen = entry.Find("template");
    if (is_default) break;
  }
  if (chosen == nullptr || !chosen->is_string()) return std::nullopt;
  return chosen->AsString();
}

std::string ReadTemplateFile(const std::string& path) {
  return RegularFile(path, "chat_template").ReadAll(kMaxTemplateBytes);
}

// In the order of transformers. nullopt: the model has none.
std::optional<std::string> TemplateSource(const EngineConfig& config,
                                          const std::optional<ConfigFields>& tokenizer_config) {
  if (config.chat_template) {
    const std::string& given = *config.chat_template;
    return given.find_first_of("{\n") == given.npos ? ReadTemplateFile(given) : given;
  }
  const std::string jinja = config.model + "/chat_template.jinja";
  if (HasModelFile(jinja)) return ReadTemplateFile(jinja);
  const std::string json = config.model + "/chat_template.json";
  if (HasModelFile(json)) {
    if (auto source = TemplateIn(ReadModelFile(json))) return source;
  }
  return tokenizer_config ? TemplateIn(*tokenizer_config) : std::nullopt;
}

// The prompt up to the mark, which the template may have shown without the space behind it.
RenderedPrompt CutAtMark(RenderedPrompt prompt) {
  const std::string_view bare = kContinueMark.substr(0, kContinueMark.size() - 1);
  const size_t mark = prompt.text.rfind(bare);
  if (mark == prompt.text.npos) {
    throw InvalidRequest("continue_final_message",
                         "the chat template does not show the content of the last message as it "
                         "is, so the answer cannot continue it");
  }
  size_t end = mark;
  if (prompt.text.compare(mark, kContinueMark.size(), kContinueMark) != 0) {
    while (end > 0 &&
           std::string_view(" \t\r\n\f\v").find(prompt.text[end - 1]) != std::string_view::npos) {
      --end;
    }
  }
  prompt.text.resize(end);
  std::erase_if(prompt.own, [&](const PromptRange& range) { return range.begin >= end; });
  if (!prompt.own.empty()) {
    prompt.own.back().end = std::min(prompt.own.back().end, static_cast<uint32_t>(end));
  }
  return prompt;
}

}  // namespace

std::shared_ptr<const ModelText> ModelText::Load(const EngineConfig& config) {
  auto text = std::make_shared<ModelText>();
  text->LoadTokenizer(config);
  text->LoadTemplate(config);
  return text;
}

void ModelText::LoadTokenizer(const EngineConfig& config) {
  const std::string path = config.model + "/tokenizer.json";
  if (!HasModelFile(path)) {
    no_tokenizer_ = "the model folder has no tokenizer.json";
    return;
  }
  tokenizer_ = Tokenizer::FromTokenizerJson(path, &no_tokenizer_);
}

void ModelText::LoadTemplate(const EngineConfig& config) {
  const std::string path = config.model + "/tokenizer_config.json";
  std::optional<ConfigFields> tokenizer_config;
  if (HasModelFile(path)) tokenizer_config = ReadModelFile(path);
  const std::optional<std::string> source = TemplateSource(config, tokenizer_config);
  if (!source) {
    no_template_ =
        "this model has no chat template (chat_template.jinja, or chat_template in "
        "tokenizer_config.json): give a prompt";
    return;
  }
  JsonWriter constants;
  constants.BeginObject();
  for (const char* name : kSpecialTokens) {
    const auto token = tokenizer_config ? TokenText(*tokenizer_config, name) : std::nullopt;
    if (!token) continue;
    constants.Add(name, *token);
    if (std::string_view(name) != "eos_token" || tokenizer_ == nullptr) continue;
    if (const auto id = tokenizer_->IdOf(*token)) chat_stop_tokens_.push_back(*id);
  }
  template_constants_ = constants.EndObject().Take();
  try {
    template_ = ChatTemplate::Compile(*source);
  } catch (const TemplateError& error) {
    if (error.kind() == TemplateError::Kind::kSyntax) {
      throw LoadError("chat_template",
                      std::string("the chat template is invalid: ") + error.what());
    }
    no_template_ = std::string("the chat template of this model is not rendered here: ") +
                   error.what() + "; give a prompt";
  }
}

const Tokenizer& ModelText::RequiredTokenizer() const {
  if (tokenizer_ != nullptr) return *tokenizer_;
  throw InvalidRequest(
      "prompt", "texts of this model are not encoded here: " + no_tokenizer_ + "; give token ids");
}

std::vector<int32_t> ModelText::Encode(std::string_view text, bool add_special_tokens) const {
  const Tokenizer& tokenizer = RequiredTokenizer();
  std::vector<int32_t> tokens = tokenizer.Encode(text);
  if (add_special_tokens) tokenizer.special_tokens().PutAround(&tokens);
  return tokens;
}

std::vector<int32_t> ModelText::EncodeChat(const RenderedPrompt& prompt,
                                           bool add_special_tokens) const {
  if (!prompt.has_input) return Encode(prompt.text, add_special_tokens);
  const Tokenizer& tokenizer = RequiredTokenizer();
  std::vector<TextSpan> own;
  own.reserve(prompt.own.size());
  for (const PromptRange& range : prompt.own) own.push_back({range.begin, range.end});
  std::vector<int32_t> tokens = tokenizer.Encode(prompt.text, own);
  if (add_special_tokens) tokenizer.special_tokens().PutAround(&tokens);
  return tokens;
}

std::string ModelText::Decode(std::span<const int32_t> tokens, bool skip_special_tokens) const {
  return RequiredTokenizer().Decode(tokens, skip_special_tokens);
}

RenderedPrompt ModelText::RenderChat(const ChatInput& input) const {
  if (template_ == nullptr) throw InvalidRequest("messages", no_template_);
  try {
    TemplateInput variables(input.is_trusted);
    ReadVariables(input.variables, &variables);
    ReadVariables(template_constants_, &variables);
    RenderedPrompt prompt = template_->Render(std::move(variables));
    return input.continues_final ? CutAtMark(std::move(prompt)) : prompt;
  } catch (const TemplateError& error) {
    const bool stopped = error.kind() == TemplateError::Kind::kLimit;
    throw InvalidRequest("messages", std::string(stopped ? "the chat template was stopped: "
                                                         : "the chat template refused the "
                                                           "messages: ") +
                                         error.what());
  }
}

}  // namespace mlc_native::c_api
