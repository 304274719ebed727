#include "step/row_limits.h"

#include "mlc_native/model.h"
#include "request/request_state.h"
#include "sampling/token_limits.h"
#include "sampling/token_mask.h"

namespace mlc_native {

std::span<const int32_t> RowLimits::Restrict(const RequestStateEntry& leaf, int64_t position,
                                             std::span<const int32_t> allowed) {
  const GenerationConfig& config = leaf.rstate->config();
  const int64_t prompt_len = leaf.rstate->request->prompt_len();
  const int64_t num_generated = position - prompt_len;
  if (!LimitsTokens(config, num_generated)) return allowed;
  if (num_used_ == masks_.size()) masks_.emplace_back();
  std::vector<int32_t>& mask = masks_[num_used_++];
  if (allowed.empty()) {
    mask.assign(TokenMaskWords(context_.model.metadata().vocab_size), -1);
  } else {
    mask.assign(allowed.begin(), allowed.end());
  }
  const std::span<const int32_t> tokens(leaf.tokens);
  const auto generated = tokens.subspan(std::min<size_t>(prompt_len, tokens.size()));
  ForbidByLimits(config, context_.eos_token_ids, generated, num_generated, mask);
  return mask;
}

}  // namespace mlc_native
