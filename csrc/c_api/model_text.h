// ModelText: how a model reads and writes text: its tokenizer and its chat template. Immutable; any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mlc_native/config.h"
#include "mlc_native/tokenizer.h"

namespace mlc_native::c_api {

struct RenderedPrompt {
  std::string text;
};

class ModelText {
 public:
  // Of the model that the settings name. A model without a tokenizer, or with one that needs
  // Python, is served with prompts of token ids. Throws LoadError, InvalidConfig.
  static std::shared_ptr<const ModelText> Load(const EngineConfig& config);

  // Each throws InvalidRequest when the model has no tokenizer, or no template, that runs here.
  std::vector<int32_t> Encode(std::string_view text, bool add_special_tokens) const;
  // Only what the template wrote becomes control tokens.
  std::vector<int32_t> EncodeChat(const RenderedPrompt& prompt, bool add_special_tokens) const;
  std::string Decode(std::span<const int32_t> tokens, bool skip_special_tokens) const;
  // `variables` is the JSON object of the template's variables.
  RenderedPrompt RenderChat(std::string_view variables) const;

  bool has_tokenizer() const { return tokenizer_ != nullptr; }
  bool has_chat_template() const { return false; }
  // The template's end of a turn, which config.json may not list.
  const std::vector<int32_t>& chat_stop_tokens() const { return chat_stop_tokens_; }
  // No token has more bytes; 0 without a tokenizer.
  size_t most_bytes_per_token() const { return most_bytes_per_token_; }

 private:
  std::shared_ptr<const TokenTable> table_;
  std::shared_ptr<const TextEncoder> tokenizer_;  // may be null
  std::string no_tokenizer_;                      // why
  std::vector<int32_t> chat_stop_tokens_;
  size_t most_bytes_per_token_ = 0;
};

}  // namespace mlc_native::c_api
