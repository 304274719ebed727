// PreTokenizer: cuts a text into the words that BPE stays within, the "pre_tokenizer" of
// tokenizer.json. Immutable after building; any thread.
//
// A chain of rules, each applied to every piece of the one before. A rule says how long the first
// word of a text is; the regular expressions of the well-known tokenizers are written out by hand,
// with the letters, numbers and spaces of Unicode. A byte that is no UTF-8 counts as a letter.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace mlc_native {

// Length in bytes of the first word of a text that is not empty; at least 1, at most its length.
using WordRule = size_t (*)(std::string_view text);

namespace word_rule {

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t Gpt2(std::string_view text);
// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
// \s*[\r\n]+|\s+(?!\S)|\s+
size_t Llama3(std::string_view text);
// The same with \p{N} in the place of \p{N}{1,3}.
size_t Qwen2(std::string_view text);
size_t SingleDigits(std::string_view text);
size_t RunsOfDigits(std::string_view text);
// Every space begins a word.
size_t SpaceBegins(std::string_view text);

}  // namespace word_rule

class PreTokenizer {
 public:
  void Add(WordRule rule) { rules_.push_back(rule); }
  // Sets *words to the pieces of the text; together they are the text. Without rules that is one.
  void Split(std::string_view text, std::vector<std::string_view>* words) const;

 private:
  std::vector<WordRule> rules_;
};

}  // namespace mlc_native
