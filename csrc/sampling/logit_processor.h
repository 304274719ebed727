// Logit bias and penalties on one row of logits, in this order. Pure; any thread.
//
// For a token generated c times (c > 0): l -= presence + c * frequency; then l = l > 0 ? l / r : l
// * r with the repetition penalty r (Keskar et al. 2019, CTRL). Only generated tokens count, the
// prompt does not.
#pragma once

#include <span>

#include "config.h"
#include "sampling/sampler.h"

namespace mlc_native {

void ApplyLogitBiasAndPenalties(std::span<float> logits, const GenerationConfig& config,
                                const TokenCounts& generated);

}  // namespace mlc_native
