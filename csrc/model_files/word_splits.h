// How texts become words before byte-level BPE, by the names that GGUF files (`tokenizer.ggml.pre`)
// have for it. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace mlc_native {

struct WordSplit {
  std::span<const std::string_view> regexes{};  // of the words; none: those of GPT-2
  bool single_digits = false;                   // every digit is a word, before the words are split
  bool ignore_merges = false;                   // a word that is a token is not spelled by merges
  bool composes = false;                        // NFC
  bool adds_bos = false;                        // unless the metadata says otherwise
};
const WordSplit* FindWordSplit(std::string_view name);  // nullptr: not supported
std::string WordSplitList();

}  // namespace mlc_native
