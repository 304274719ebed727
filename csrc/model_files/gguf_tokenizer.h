// The tokenizer.json (huggingface/tokenizers) of a GGUF file, made of its metadata: the vocabulary,
// its merges, and what llama.cpp knows by the name of the pre-tokenizer. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model_files/gguf_file.h"

namespace mlc_native {

// Whether the file has a tokenizer.
bool HasGgufTokenizer(const GgufFile& file);
// Throws LoadError for a kind of vocabulary or a pre-tokenizer that is not supported. Decoding
// needs no merges, which are half of the work.
std::string GgufTokenizerJson(const GgufFile& file, bool with_merges);

// The tokens that end an answer: those that the metadata names, and control tokens whose text is
// known to end a turn.
std::vector<int64_t> GgufEndTokens(const GgufFile& file);

// The splitting of texts that a name of `tokenizer.ggml.pre` stands for.
struct GgufPreTokenizer {
  std::span<const std::string_view> regexes{};  // of the words; none: those of GPT-2
  bool single_digits = false;                   // every digit is a word, before the words are split
  bool ignore_merges = false;                   // a word that is a token is not spelled by merges
  bool composes = false;                        // NFC
  bool adds_bos = false;                        // unless the metadata says otherwise
};
const GgufPreTokenizer* FindGgufPreTokenizer(std::string_view name);  // nullptr: not supported
std::string GgufPreTokenizerList();

}  // namespace mlc_native
