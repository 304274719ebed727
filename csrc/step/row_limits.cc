#include "step/row_limits.h"

#include "mlc_native/model.h"
#include "request/request_state.h"
#include "sampling/token_limits.h"
#include "sampling/token_mask.h"

namespace mlc_native {

std::span<const int32_t> RowLimits::Restrict(const RequestStateEntry& leaf, int64_t position,
                                             std::span<const int32_t> allowed) {
  if (!leaf.is_limited) return allowed;
  const int64_t prompt_len = leaf.rstate->request->prompt_len();
  if (!LimitsTokens(leaf.rstate->config(), position - prompt_len)) return allowed;
  return MaskOf(leaf, position, allowed);
}

std::span<const int32_t> RowLimits::MaskOf(const RequestStateEntry& leaf, int64_t position,
                                           std::span<const int32_t> allowed) {
  if (num_used_ == masks_.size()) masks_.emplace_back();
  std::vector<int32_t>& mask = masks_[num_used_++];
  if (allowed.empty()) {
    mask.assign(TokenMaskWords(context_.model.metadata().vocab_size), -1);
  } else {
    mask.assign(allowed.begin(), allowed.end());
  }
  const std::span<const int32_t> tokens(leaf.tokens);
  const size_t num_known = std::min(static_cast<size_t>(position), tokens.size());
  const int64_t prompt_len = leaf.rstate->request->prompt_len();
  const TokenHistory history = {tokens.first(num_known), prompt_len, position - prompt_len};
  ForbidByLimits(leaf.rstate->config(), context_.eos_token_ids, history, mask);
  return mask;
}

}  // namespace mlc_native
