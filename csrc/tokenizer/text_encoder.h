// BpeEncoder: the TextEncoder of the BPE vocabularies, which are all that it has. Immutable; any
// thread.
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

class BpeEncoder final : public TextEncoder {
 public:
  class Reader;  // of a tokenizer.json
  bool Encode(std::string_view text, std::vector<int32_t>* token_ids) const override;

 private:
  BpeEncoder() { byte_ids_.fill(kNoToken); }
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
