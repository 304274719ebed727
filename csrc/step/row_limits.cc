#include "step/row_limits.h"

#include <algorithm>

#include "mlc_native/model.h"
#include "request/request_state.h"
#include "sampling/token_limits.h"
#include "support/token_mask.h"

namespace mlc_native {

std::span<const int32_t> RowLimits::Restrict(const RequestStateEntry& leaf,
                                             std::span<const int32_t> drafts, int64_t position,
                                             std::span<const int32_t> allowed) {
  if (!leaf.is_limited) return allowed;
  const int64_t prompt_len = leaf.rstate->request->prompt_len();
  if (!LimitsTokens(leaf.rstate->config(), position - prompt_len)) return allowed;
  return MaskOf(leaf, drafts, position, allowed);
}

std::span<const int32_t> RowLimits::MaskOf(const RequestStateEntry& leaf,
                                           std::span<const int32_t> drafts, int64_t position,
                                           std::span<const int32_t> allowed) {
  if (num_used_ == masks_.size()) masks_.emplace_back();
  std::vector<int32_t>& mask = masks_[num_used_++];
  if (allowed.empty()) {
    mask.assign(TokenMaskWords(context_.model.metadata().vocab_size), -1);
  } else {
    mask.assign(allowed.begin(), allowed.end());
  }
  const int64_t prompt_len = leaf.rstate->request->prompt_len();
  const TokenHistory history = {TokensBefore(leaf, drafts, position), prompt_len,
                                position - prompt_len};
  ForbidByLimits(leaf.rstate->config(), context_.eos_token_ids, history, mask);
  return mask;
}

std::span<const int32_t> RowLimits::TokensBefore(const RequestStateEntry& leaf,
                                                 std::span<const int32_t> drafts,
                                                 int64_t position) {
  // A branch that is not forked yet has none; its prompt is the root's.
  const std::span<const int32_t> tokens(leaf.tokens.empty() ? leaf.rstate->entries[0].tokens
                                                            : leaf.tokens);
  if (drafts.empty() || !LimitsDependOnTokens(leaf.rstate->config())) {
    return tokens.first(std::min(static_cast<size_t>(position), tokens.size()));
  }
  with_drafts_.assign(tokens.begin(), tokens.end());
  with_drafts_.insert(with_drafts_.end(), drafts.begin(), drafts.end());
  return with_drafts_;
}

}  // namespace mlc_native
