// ModelText: how a model reads and writes text: its tokenizer and its chat template. Immutable; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mlc_native/config.h"
#include "mlc_native/tokenizer.h"
#include "template/chat_template.h"

namespace mlc_native::c_api {

// What a chat template is rendered with.
struct ChatInput {
  std::string variables;         // a JSON object
  bool is_trusted = false;       // texts of the request may become control tokens
  bool continues_final = false;  // the prompt ends with the content of the last message
};

class ModelText {
 public:
  // Of the model that the settings name. A model without a tokenizer, or with one that needs
  // Python, is served with prompts of token ids. Throws LoadError, InvalidConfig.
  static std::shared_ptr<const ModelText> Load(const EngineConfig& config);

  // Each throws InvalidRequest if the model has no tokenizer, or no template, that runs here.
  std::vector<int32_t> Encode(std::string_view text, bool add_special_tokens) const;
  // Only what the template wrote becomes control tokens.
  std::vector<int32_t> EncodeChat(const RenderedPrompt& prompt, bool add_special_tokens) const;
  std::string Decode(std::span<const int32_t> tokens, bool skip_special_tokens) const;
  RenderedPrompt RenderChat(const ChatInput& input) const;

  bool has_tokenizer() const { return tokenizer_ != nullptr; }
  bool has_chat_template() const { return template_ != nullptr; }
  // The template's end of a turn, which config.json may not list.
  const std::vector<int32_t>& chat_stop_tokens() const { return chat_stop_tokens_; }
  // A token stands for at most so many bytes of a text; 0: it is not known.
  size_t most_text_bytes() const {
    return tokenizer_ == nullptr ? 0 : static_cast<size_t>(tokenizer_->most_text_bytes());
  }

 private:
  void LoadTokenizer(const EngineConfig& config);
  void LoadTemplate(const EngineConfig& config);
  const Tokenizer& RequiredTokenizer() const;

  std::shared_ptr<const Tokenizer> tokenizer_;    // may be null
  std::string no_tokenizer_;                      // why
  std::shared_ptr<const ChatTemplate> template_;  // may be null
  std::string no_template_;                       // why
  std::string template_constants_;                // JSON: bos_token and others
  std::vector<int32_t> chat_stop_tokens_;
};

// Marks the end of a message that the answer continues. The space behind it shows whether the
// template strips the content, as in transformers.
inline constexpr std::string_view kContinueMark =
    "\xEE\x83\xB7"
    "CONTINUE_FINAL_MESSAGE\xEE\x83\xB7 ";

}  // namespace mlc_native::c_api
