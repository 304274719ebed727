#include "sampling/token_limits.h"

#include "sampling/token_mask.h"

namespace mlc_native {
bool LimitsTokens(const GenerationConfig& config, int64_t num_generated) {
  return num_generated < config.min_tokens || !config.allowed_token_ids.empty();
}

void ForbidByLimits(const GenerationConfig& config, std::span<const int32_t> eos_token_ids,
                    int64_t num_generated, std::span<int32_t> mask) {
  if (!config.allowed_token_ids.empty()) KeepTokenBits(mask, config.allowed_token_ids);
  if (num_generated < config.min_tokens) {
    for (int32_t id : config.stop_token_ids) SetTokenBit(mask, id, false);
    if (!config.debug_config.ignore_eos) {
      for (int32_t id : eos_token_ids) SetTokenBit(mask, id, false);
    }
  }
}

}  // namespace mlc_native
