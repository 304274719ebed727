#include "c_api/model_text.h"

#include <algorithm>

#include "model_files/model_files.h"
#include "support/error.h"
#include "support/utf8.h"

namespace mlc_native::c_api {

std::shared_ptr<const ModelText> ModelText::Load(const EngineConfig& config) {
  auto text = std::make_shared<ModelText>();
  const std::string path = config.model + "/tokenizer.json";
  if (!HasModelFile(path)) {
    text->no_tokenizer_ = "the model folder has no tokenizer.json";
    return text;
  }
  text->table_ = TokenTable::FromTokenizerJson(path, config.visible_special_tokens);
  text->tokenizer_ = TextEncoder::FromTokenizerJson(path, *text->table_, &text->no_tokenizer_);
  for (int32_t i = 0; i < text->table_->size(); ++i) {
    text->most_bytes_per_token_ =
        std::max(text->most_bytes_per_token_, text->table_->bytes(i).size());
  }
  return text;
}

std::vector<int32_t> ModelText::Encode(std::string_view text, bool /*add_special_tokens*/) const {
  std::vector<int32_t> tokens;
  if (tokenizer_ == nullptr || !tokenizer_->Encode(text, &tokens)) {
    throw InvalidRequest("prompt", "a prompt of this model must be token ids: " + no_tokenizer_);
  }
  return tokens;
}

std::vector<int32_t> ModelText::EncodeChat(const RenderedPrompt& prompt,
                                           bool add_special_tokens) const {
  return Encode(prompt.text, add_special_tokens);
}

std::string ModelText::Decode(std::span<const int32_t> tokens, bool skip_special_tokens) const {
  if (table_ == nullptr) throw InvalidRequest("tokens", no_tokenizer_);
  std::string bytes;
  for (const int32_t token : tokens) {
    bytes += skip_special_tokens ? table_->text_bytes(token) : table_->bytes(token);
  }
  return ToValidUtf8(bytes);
}

RenderedPrompt ModelText::RenderChat(std::string_view /*variables*/) const {
  throw InvalidRequest("messages", "no template");
}

}  // namespace mlc_native::c_api
