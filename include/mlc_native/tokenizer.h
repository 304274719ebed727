// The tokens of a model as bytes, and texts as tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
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

// A part of a text, in bytes.
struct TextSpan {
  size_t begin;
  size_t end;
};

// The tokens that a tokenizer puts around a text, such as BOS.
struct MLC_NATIVE_API SpecialTokens {
  std::vector<int32_t> front;
  std::vector<int32_t> back;

  // Puts them around the tokens. Those that are there already are not repeated.
  void PutAround(std::vector<int32_t>* token_ids) const;
};

// Tokenizer turns texts into tokens and back, as the tokenizers package does. Immutable; any
// thread.
//
// It supports the BPE and Unigram vocabularies of tokenizer.json with their normalizers, added
// tokens, pre-tokenizers and post-processors. Encoding takes a time that grows as the text does.
// Texts are UTF-8.
class MLC_NATIVE_API Tokenizer {
 public:
  // Returns null for a file with a part that is not supported, which *reason then names. Throws
  // LoadError if the file is missing or damaged. `add_bos_token` of a tokenizer_config.json in the
  // same folder decides about the BOS token of special_tokens().
  static std::shared_ptr<const Tokenizer> FromTokenizerJson(const std::string& tokenizer_json_path,
                                                            std::string* reason);
  virtual ~Tokenizer() = default;

  // The tokens of a text, without special_tokens(). A text of a control token becomes that token.
  // Throws InvalidRequest for a text that cannot be encoded.
  virtual std::vector<int32_t> Encode(std::string_view text) const = 0;
  // The same for a prompt of which the chat template wrote the parts `own`: in other parts, texts
  // of control tokens stay texts. Control tokens are the special ones, and those that look like
  // <|user|>. Requires: the parts ascend and do not overlap.
  virtual std::vector<int32_t> Encode(std::string_view text,
                                      std::span<const TextSpan> own) const = 0;
  // The text of tokens; bytes that are no UTF-8 become U+FFFD.
  virtual std::string Decode(std::span<const int32_t> token_ids,
                             bool skip_special_tokens) const = 0;

  virtual const SpecialTokens& special_tokens() const = 0;
  virtual int64_t vocab_size() const = 0;  // tokens, including added ones
  // No token stands for more bytes of a text. 0: a token may stand for any number of them, such as
  // one for a run of unknown characters.
  virtual size_t most_text_bytes() const = 0;
  // The regular expressions of the file.
  virtual const std::vector<std::string>& patterns() const = 0;
  virtual std::shared_ptr<const TokenTable> token_table() const = 0;  // of the same file
  // By the token as the vocabulary writes it.
  virtual std::optional<int32_t> IdOf(std::string_view token) const = 0;
  virtual std::optional<std::string> TokenOf(int32_t token_id) const = 0;
};

// TextEncoder turns texts that continue other ones into tokens. Immutable; any thread.
//
// It is a Tokenizer without what applies to whole texts: nothing is put in front of a text, and a
// text never becomes a special token of the table. Bytes that are no UTF-8 are encoded, since a
// text may begin within a character. The tokens spell exactly the bytes of the text, which is why
// tokenizers that change texts are not supported; NFC is left out, since texts are normally in that
// form.
class MLC_NATIVE_API TextEncoder {
 public:
  // Returns null for a tokenizer with a part that is not supported; *reason then names it. `table`
  // is the table of the same file. Throws LoadError if the file is missing or damaged.
  static std::shared_ptr<const TextEncoder> FromTokenizerJson(
      const std::string& tokenizer_json_path, const TokenTable& table, std::string* reason);
  virtual ~TextEncoder() = default;

  // Appends the tokens of the text. Returns false if a character or byte has no token; *token_ids
  // is then incomplete.
  virtual bool Encode(std::string_view text, std::vector<int32_t>* token_ids) const = 0;
};

}  // namespace mlc_native
