// The tokens of a model as bytes, and short texts as tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mlc_native/detail/export.h"

namespace mlc_native {

// TokenTable maps each token id to its bytes. Immutable; shared between threads.
//
// It is built from a tokenizer.json with a BPE, Unigram, WordPiece or WordLevel vocabulary, whose
// tokens are read as the file's decoder reads them (tokenizer_json.cc): byte-level (GPT-2's map
// between bytes and characters), byte-fallback ("<0x0A>" is a byte, U+2581 is a space), metaspace,
// "##" continuations. Special tokens add nothing to a text, except those that the caller names:
// they are like other added tokens. Unused ids, and ids beyond the vocabulary (padded embeddings),
// are empty.
class MLC_NATIVE_API TokenTable {
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

// TextEncoder turns short texts into tokens. Immutable; any thread.
//
// It supports the BPE vocabularies of tokenizer.json: byte-level ones (GPT-2, Llama-3, Qwen) and
// those of characters with U+2581 for spaces (Llama-2, Mistral). A text is treated as the
// continuation of another one, so nothing is put in front of it. The tokens spell exactly the bytes
// of the text. They are the tokens of the tokenizers package, with these exceptions:
//   - A text never produces special tokens of the table. Other added tokens are produced.
//   - There is no NFC normalization, since texts are normally in that form.
//   - A Split by a pattern without a known rule uses the rule of Llama-3, and other steps that only
//     split are left out. Tokens may then be longer than those of the tokenizer.
class MLC_NATIVE_API TextEncoder {
 public:
  // Returns null for a tokenizer of another kind; *reason then names the kind. `table` is the table
  // of the same file. Throws LoadError if the file is missing or damaged.
  static std::shared_ptr<const TextEncoder> FromTokenizerJson(
      const std::string& tokenizer_json_path, const TokenTable& table, std::string* reason);
  virtual ~TextEncoder() = default;

  // Appends the tokens of the text, in O(n log n). Returns false if a character or byte has no
  // token; *token_ids is then incomplete.
  virtual bool Encode(std::string_view text, std::vector<int32_t>* token_ids) const = 0;
};

}  // namespace mlc_native
