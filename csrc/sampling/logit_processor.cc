#include "sampling/logit_processor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/check.h"

namespace mlc_native {
namespace {

float& At(std::span<float> logits, int32_t token_id) {
  MLC_CHECK(token_id >= 0 && static_cast<size_t>(token_id) < logits.size())
      << "token id " << token_id << " in a vocabulary of " << logits.size();
  return logits[token_id];
}

}  // namespace

bool HasPenalties(const GenerationConfig& config) {
  return config.presence_penalty != 0 || config.frequency_penalty != 0 ||
         config.repetition_penalty != 1;
}

bool HasLogitBiasOrPenalties(const GenerationConfig& config, TokenCountsView generated) {
  return !config.logit_bias.empty() || (HasPenalties(config) && !generated.empty());
}

void ApplyLogitBiasAndPenalties(std::span<float> logits, const GenerationConfig& config,
                                TokenCountsView generated) {
  for (const auto& [token_id, bias] : config.logit_bias) {
    At(logits, token_id) += static_cast<float>(bias);
  }
  if (!HasPenalties(config)) return;
  for (const auto& [token_id, count] : generated) {
    if (count == 0) continue;
    float& logit = At(logits, token_id);
    if (!std::isfinite(logit)) continue;  // -inf stays forbidden; a NaN is reported later
    double value = logit - config.presence_penalty - count * config.frequency_penalty;
    value = value > 0 ? value / config.repetition_penalty : value * config.repetition_penalty;
    // An extreme penalty saturates: the logit stays finite.
    constexpr double kMax = std::numeric_limits<float>::max();
    logit = static_cast<float>(std::clamp(value, -kMax, kMax));
  }
}

}  // namespace mlc_native
