// What the vocabularies of all kinds of GGUF files have in common. Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "model_files/gguf_file.h"
#include "model_files/vocabulary.h"

namespace mlc_native {

inline constexpr char kGgufTokenizerModel[] = "tokenizer.ggml.model";
inline constexpr char kGgufTokens[] = "tokenizer.ggml.tokens";
inline constexpr char kGgufBos[] = "tokenizer.ggml.bos_token_id";
inline constexpr char kGgufEos[] = "tokenizer.ggml.eos_token_id";
inline constexpr char kGgufSep[] = "tokenizer.ggml.seperator_token_id";  // as it is spelled

// The tokens and their types, and the added tokens. The texts are those of the file. Throws
// LoadError: too many tokens, or types of another number of them.
Vocabulary ReadGgufVocabulary(const GgufFile& file);

// nullopt: the file does not have the key, or -1. Throws LoadError for what is no token.
std::optional<size_t> GgufTokenId(const GgufFile& file, const Vocabulary& vocabulary,
                                  const char* key);
std::optional<size_t> GgufUnknownId(const GgufFile& file, const Vocabulary& vocabulary);
// One for each token. Throws LoadError.
std::vector<double> GgufScores(const GgufFile& file, const Vocabulary& vocabulary);

}  // namespace mlc_native
