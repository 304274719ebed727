// TokenizerPipeline is the Tokenizer of a file's parts: added tokens, normalizers, pre-tokenizers
// and the model, one after the other. Immutable; any thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "mlc_native/tokenizer.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/tokenizer_parts.h"

namespace mlc_native {

class TokenizerPipeline final : public Tokenizer {
 public:
  TokenizerPipeline(TokenizerParts parts, std::shared_ptr<const TokenTable> table);

  std::vector<int32_t> Encode(std::string_view text) const override;
  std::vector<int32_t> Encode(std::string_view text, std::span<const TextSpan> own) const override;
  std::string Decode(std::span<const int32_t> token_ids, bool skip_special_tokens) const override;
  const SpecialTokens& special_tokens() const override { return parts_.special_tokens; }
  int64_t vocab_size() const override { return vocab_size_; }
  size_t most_text_bytes() const override { return most_text_bytes_; }
  const std::vector<std::string>& patterns() const override { return parts_.patterns; }
  std::shared_ptr<const TokenTable> token_table() const override { return table_; }
  std::optional<int32_t> IdOf(std::string_view token) const override;
  std::optional<std::string> TokenOf(int32_t token_id) const override;

 private:
  // Of a prompt in which control tokens count within `own` alone. *has_control tells whether the
  // model made a control token of what is none.
  std::vector<int32_t> EncodeOwn(std::string_view text, std::span<const TextSpan> own,
                                 bool* has_control) const;
  std::vector<int32_t> EncodePieces(const std::vector<TextPiece>& raw, bool wants_controls,
                                    bool* has_control) const;

  const TokenizerParts parts_;
  const AddedTokens added_tokens_;
  const std::shared_ptr<const TokenTable> table_;
  std::unordered_map<int32_t, std::string_view> tokens_;  // by id
  std::unordered_map<std::string_view, int32_t> added_ids_;
  int64_t vocab_size_ = 0;
  size_t most_text_bytes_ = 0;
};

}  // namespace mlc_native
