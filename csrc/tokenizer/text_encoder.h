// TextEncoder: short texts to tokens without Python, for the engine's thread. Immutable; any
// thread.
//
// BPE vocabularies of tokenizer.json, byte-level (GPT-2, Llama-3, Qwen) and of characters with
// U+2581 for spaces (Llama-2, Mistral). A text is taken as the continuation of another: nothing is
// put in front of it. The tokens always spell the text byte by byte. They are those of the
// tokenizers package, but:
//   - special tokens never come out of a text; added tokens that are not special do;
//   - NFC normalization is left out (texts are in that form as a rule);
//   - a Split by a pattern that is not among the rules of PreTokenizer is taken for Llama-3's,
//   other
//     steps that only cut are left out: tokens may then be longer than the tokenizer's.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/bpe_merges.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_table.h"

namespace mlc_native {

class TextEncoder {
 public:
  // Null for a tokenizer of another kind; *reason says which. `table` is of the same file. Throws
  // LoadError when the file is missing or damaged.
  static std::shared_ptr<const TextEncoder> FromTokenizerJson(
      const std::string& tokenizer_json_path, const TokenTable& table, std::string* reason);

  // Appends the tokens of the text. False when a character or byte of it has no token; *token_ids
  // is then incomplete. O(n log n).
  bool Encode(std::string_view text, std::vector<int32_t>* token_ids) const;

 private:
  class Reader;
  TextEncoder() { byte_ids_.fill(kNoToken); }
  static constexpr int32_t kNoToken = -1;

  struct AddedToken {
    std::string text;
    int32_t token_id;
  };
  // The longest added token that the text begins with, or null.
  const AddedToken* AddedTokenAt(std::string_view text) const;
  bool EncodePlain(std::string_view text, std::vector<int32_t>* token_ids) const;
  // Sets *token_ids to a token for every byte or character.
  bool SpellWord(std::string_view word, std::vector<int32_t>* token_ids) const;

  PreTokenizer pre_tokenizer_;
  BpeMerges merges_;
  std::array<int32_t, 256> byte_ids_{};
  std::unordered_map<std::string, int32_t> char_ids_;  // by UTF-8; empty for byte-level
  // Words that are tokens as they are, whatever the merges say; only with "ignore_merges".
  std::unordered_map<std::string, int32_t> word_ids_;
  std::array<std::vector<AddedToken>, 256> added_tokens_;  // by first byte, longest first
};

}  // namespace mlc_native
