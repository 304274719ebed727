// TokenTable maps each token id to its bytes. Immutable; shared between threads.
//
// It is built from a tokenizer.json with a BPE, Unigram, WordPiece or WordLevel vocabulary, whose
// tokens are read as the file's decoder reads them (tokenizer_json.cc): byte-level (GPT-2's map
// between bytes and characters), byte-fallback ("<0x0A>" is a byte, U+2581 is a space), metaspace,
// "##" continuations. Special tokens add nothing to a text, except those that the caller names:
// they are like other added tokens. Unused ids, and ids beyond the vocabulary (padded embeddings),
// are empty.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace mlc_native {

class TokenTable {
 public:
  // `visible` are special tokens that add their text to a text. Throws LoadError if the file is
  // missing, damaged or of an unsupported kind, which the message names.
  static std::shared_ptr<const TokenTable> FromTokenizerJson(
      const std::string& tokenizer_json_path, const std::vector<std::string>& visible = {});
  // `is_special` has one flag per token, or is empty.
  TokenTable(std::vector<std::string> token_bytes, std::vector<bool> is_special,
             bool strip_leading_space);

  int64_t size() const { return static_cast<int64_t>(token_bytes_.size()); }
  // Returns the raw bytes of the token, also of special ones. Empty for ids outside the table.
  std::string_view bytes(int32_t token_id) const;
  // Returns the bytes that the token adds to a text. Empty for special tokens.
  std::string_view text_bytes(int32_t token_id) const;
  bool is_special(int32_t token_id) const;
  // The tokenizer prepends a space when encoding, so the first space of a decoded text is dropped.
  bool strip_leading_space() const { return strip_leading_space_; }

 private:
  bool Contains(int32_t token_id) const { return token_id >= 0 && token_id < size(); }

  std::vector<std::string> token_bytes_;
  std::vector<bool> is_special_;
  bool strip_leading_space_ = false;
};

}  // namespace mlc_native
