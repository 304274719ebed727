// GgufTokenizerConfigJson of gguf_config.h: tokenizer_config.json, made of a file's metadata.
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model_files/gguf_config.h"
#include "support/json.h"

namespace mlc_native {

std::string GgufTokenizerConfigJson(const GgufFile& file) {
  const std::vector<std::string_view> tokens = file.Strings("tokenizer.ggml.tokens");
  JsonWriter json;
  json.BeginObject();
  const auto add_token = [&](const char* field, const char* key) {
    const std::optional<int64_t> id = file.Integer(key);
    if (!id || *id < 0 || static_cast<uint64_t>(*id) >= tokens.size()) return;
    json.Add(field, tokens[static_cast<size_t>(*id)]);
  };
  add_token("bos_token", "tokenizer.ggml.bos_token_id");
  add_token("eos_token", "tokenizer.ggml.eos_token_id");
  add_token("unk_token", "tokenizer.ggml.unknown_token_id");
  add_token("pad_token", "tokenizer.ggml.padding_token_id");
  if (const auto chat = file.String("tokenizer.chat_template")) json.Add("chat_template", *chat);
  json.EndObject();
  return json.Take();
}

}  // namespace mlc_native
