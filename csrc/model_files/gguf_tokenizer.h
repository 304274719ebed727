// The tokenizer of a GGUF file, of its metadata: the vocabulary, its merges, and what llama.cpp
// knows by the name of the pre-tokenizer. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "model_files/gguf_file.h"
#include "model_files/vocabulary.h"

namespace mlc_native {

// Whether the file has a tokenizer.
bool HasGgufTokenizer(const GgufFile& file);
// Its texts are those of the file. Throws LoadError for a kind of vocabulary or a pre-tokenizer
// that is not supported. Decoding needs no merges, which are half of the work.
Vocabulary ReadGgufTokenizer(const GgufFile& file, bool with_merges);

// The tokens that end an answer: those that the metadata names, and control tokens whose text is
// known to end a turn.
std::vector<int64_t> GgufEndTokens(const GgufFile& file);

}  // namespace mlc_native
