// Retokenizer: the tokens of a sequence whose text is known to go on, for jump-forward decoding.
// Immutable; any thread.
//
// The last tokens of the sequence are encoded again together with the text that follows, so that
// the model reads the tokens that it would read in a prompt. The text stays the same byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/text_encoder.h"
#include "tokenizer/token_table.h"

namespace mlc_native {

class Retokenizer {
 public:
  Retokenizer(std::shared_ptr<const TokenTable> table, std::shared_ptr<const TextEncoder> encoder);

  struct Extension {
    size_t num_kept = 0;         // of the last tokens; those behind are taken back
    std::vector<int32_t> added;  // come in their place
  };
  // `last` and behind it `text`. Tokens without text stay, and all before them. Nothing when the
  // text cannot be encoded.
  std::optional<Extension> Extend(std::span<const int32_t> last, std::string_view text) const;

  // Whether an allowed token is longer than this one and begins with it. Bit t % 32 of word t / 32
  // of `allowed` is about token t; empty: every token is.
  bool MayBeLonger(int32_t token_id, std::span<const int32_t> allowed) const;

  std::string_view TextOf(int32_t token_id) const { return table_->text_bytes(token_id); }

 private:
  const std::shared_ptr<const TokenTable> table_;
  const std::shared_ptr<const TextEncoder> encoder_;
  std::vector<int32_t> sorted_;  // tokens with text, by text
};

}  // namespace mlc_native
