// Logit bias and penalties on one row of logits, in this order. Pure; any thread.
//
// For a token generated c times (c > 0): l -= presence + c * frequency; then l = l > 0 ? l / r : l
// * r with the repetition penalty r (Keskar et al. 2019, CTRL). Only generated tokens count, the
// prompt does not. Costs only the listed and the generated tokens, not the vocabulary.
#pragma once

#include <span>

#include "config/config.h"
#include "sampling/token_counts.h"

namespace mlc_native {

bool HasPenalties(const GenerationConfig& config);

// Whether the call below would change anything.
bool HasLogitBiasOrPenalties(const GenerationConfig& config, TokenCountsView generated);

// Token ids are in [0, logits.size()), which Validate and sampling see to.
void ApplyLogitBiasAndPenalties(std::span<float> logits, const GenerationConfig& config,
                                TokenCountsView generated);

}  // namespace mlc_native
