// PreTokenizer splits a text into words; BPE never merges across words. It is the "pre_tokenizer"
// of tokenizer.json. Immutable after building; any thread.
//
// It is a chain of rules, each applied to every piece of the previous one. A rule returns the
// length of the first word of a text. The regular expressions of the well-known tokenizers are
// written by hand, with the letters, numbers and spaces of Unicode. A byte of invalid UTF-8 counts
// as a letter.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace mlc_native {

// Returns the length in bytes of the first word of `text`, at least 1. Requires: text is not empty.
using WordRule = size_t (*)(std::string_view text);

namespace word_rule {

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t Gpt2(std::string_view text);
// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
// \s*[\r\n]+|\s+(?!\S)|\s+
size_t Llama3(std::string_view text);
// The same with \p{N} instead of \p{N}{1,3}.
size_t Qwen2(std::string_view text);
size_t SingleDigits(std::string_view text);
size_t RunsOfDigits(std::string_view text);
// Every space begins a word.
size_t SpaceBegins(std::string_view text);

}  // namespace word_rule

class PreTokenizer {
 public:
  void Add(WordRule rule) { rules_.push_back(rule); }
  // Sets *words to the consecutive pieces of the text. Without rules there is one piece.
  void Split(std::string_view text, std::vector<std::string_view>* words) const;

 private:
  std::vector<WordRule> rules_;
};

}  // namespace mlc_native
