// Retokenizer turns forced text into tokens of a sequence, for jump-forward decoding. Immutable;
// any thread.
//
// It encodes the last tokens of the sequence again, together with the text that follows, so that
// the model reads the same tokens as in a prompt. The text itself stays the same, byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mlc_native/tokenizer.h"

namespace mlc_native {

class Retokenizer {
 public:
  Retokenizer(std::shared_ptr<const TokenTable> table, std::shared_ptr<const TextEncoder> encoder);

  struct Extension {
    size_t num_kept = 0;         // how many of the last tokens stay; the others are taken back
    std::vector<int32_t> added;  // tokens to append after the kept ones
  };
  // Encodes the text of the tokens `last` followed by `text`. A token without text stays, as do all
  // tokens before it. Returns nullopt if the text cannot be encoded.
  std::optional<Extension> Extend(std::span<const int32_t> last, std::string_view text) const;

  // True if the text of some other allowed token begins with the text of this one. Bit t % 32 of
  // allowed[t / 32] tells whether token t is allowed; if `allowed` is empty, every token is.
  bool MayBeLonger(int32_t token_id, std::span<const int32_t> allowed) const;

  std::string_view TextOf(int32_t token_id) const { return table_->text_bytes(token_id); }

 private:
  const std::shared_ptr<const TokenTable> table_;
  const std::shared_ptr<const TextEncoder> encoder_;
  std::vector<int32_t> sorted_;  // tokens with text, by text
};

}  // namespace mlc_native
