// TextEncoder turns short texts into tokens in C++, for the engine's thread. Immutable; any thread.
//
// It supports the BPE vocabularies of tokenizer.json: byte-level ones (GPT-2, Llama-3, Qwen) and
// those of characters with U+2581 for spaces (Llama-2, Mistral). A text is treated as the
// continuation of another one, so nothing is put in front of it. The tokens spell exactly the bytes
// of the text. They are the tokens of the tokenizers package, with these exceptions:
//   - A text never produces special tokens of the table. Other added tokens are produced.
//   - There is no NFC normalization, since texts are normally in that form.
//   - A Split by a pattern without a rule in PreTokenizer uses the rule of Llama-3, and other steps
//     that only split are left out. Tokens may then be longer than those of the tokenizer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "mlc_native/tokenizer.h"
#include "tokenizer/bpe_merges.h"
#include "tokenizer/pre_tokenizer.h"

namespace mlc_native {

class TextEncoder {
 public:
  // Returns null for a tokenizer of another kind; *reason then names the kind. `table` is the table
  // of the same file. Throws LoadError if the file is missing or damaged.
  static std::shared_ptr<const TextEncoder> FromTokenizerJson(
      const std::string& tokenizer_json_path, const TokenTable& table, std::string* reason);

  // Appends the tokens of the text, in O(n log n). Returns false if a character or byte has no
  // token; *token_ids is then incomplete.
  bool Encode(std::string_view text, std::vector<int32_t>* token_ids) const;

 private:
  class Reader;
  TextEncoder() { byte_ids_.fill(kNoToken); }
  static constexpr int32_t kNoToken = -1;

  struct AddedToken {
    std::string text;
    int32_t token_id;
  };
  // Returns the longest added token at the beginning of the text, or null.
  const AddedToken* AddedTokenAt(std::string_view text) const;
  bool EncodePlain(std::string_view text, std::vector<int32_t>* token_ids) const;
  // Sets *token_ids to one token per byte or character.
  bool SpellWord(std::string_view word, std::vector<int32_t>* token_ids) const;

  PreTokenizer pre_tokenizer_;
  BpeMerges merges_;
  std::array<int32_t, 256> byte_ids_{};
  std::unordered_map<std::string, int32_t> char_ids_;  // key: UTF-8; empty for byte-level
  // Words that are tokens regardless of merges; only with "ignore_merges".
  std::unordered_map<std::string, int32_t> word_ids_;
  std::array<std::vector<AddedToken>, 256> added_tokens_;  // by first byte, longest first
};

}  // namespace mlc_native
