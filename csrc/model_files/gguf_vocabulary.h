// GgufVocabulary is the vocabulary of a GGUF file; with it, what all kinds of tokenizer.json that
// are made of one have in common. Its texts are those of the file, which must outlive it. Any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model_files/gguf_file.h"
#include "support/json.h"

namespace mlc_native {

inline constexpr char kGgufTokenizerModel[] = "tokenizer.ggml.model";
inline constexpr char kGgufTokens[] = "tokenizer.ggml.tokens";
inline constexpr char kGgufBos[] = "tokenizer.ggml.bos_token_id";
inline constexpr char kGgufEos[] = "tokenizer.ggml.eos_token_id";
inline constexpr char kGgufSep[] = "tokenizer.ggml.seperator_token_id";  // as it is spelled
inline constexpr std::string_view kGgufSpace = "\xE2\x96\x81";           // U+2581

// Values of tokenizer.ggml.token_type, which are those of SentencePiece.
enum class GgufTokenType : int64_t {
  kNormal = 1,
  kUnknown,
  kControl,
  kUserDefined,
  kUnused,
  kByte
};

struct GgufVocabulary {
  // Throws LoadError: too many tokens, or types of another number of them.
  explicit GgufVocabulary(const GgufFile& file);

  GgufTokenType type(size_t id) const {
    return types.empty() ? GgufTokenType::kNormal : static_cast<GgufTokenType>(types[id]);
  }
  // Found in texts before these are split into words.
  bool is_added(size_t id) const;
  // nullopt: the file does not have the key, or -1. Throws LoadError for what is no token.
  std::optional<size_t> IdOf(const GgufFile& file, const char* key) const;
  std::optional<size_t> IdOfUnknown(const GgufFile& file) const;
  // One for each token. Throws LoadError.
  std::vector<double> Scores(const GgufFile& file) const;

  std::vector<std::string_view> tokens;
  std::vector<int64_t> types;  // or none
};

// The special tokens around a text, and those of a pair.
struct GgufTemplate {
  std::optional<size_t> front{};
  std::optional<size_t> back{};
  std::vector<size_t> between{};  // behind the first text of a pair
  int second_type = 0;            // of the second text, and of what is behind it
};

// Begins an object of this type.
void PutGgufType(JsonWriter& json, const char* type);
// Begins a tokenizer.json; up to the added tokens.
void BeginGgufTokenizer(JsonWriter& json, const GgufFile& file, const GgufVocabulary& vocabulary);
// The post-processor.
void PutGgufTemplate(JsonWriter& json, const GgufVocabulary& vocabulary,
                     const GgufTemplate& around);
// The ids of a model's tokens, by their texts.
void PutGgufIds(JsonWriter& json, const GgufVocabulary& vocabulary);

}  // namespace mlc_native
