// Applies logit bias and penalties, in this order, to one row of logits. Pure; any thread.
//
// For a token generated c > 0 times: l -= presence + c * frequency, and then l = l > 0 ? l / r : l
// * r with the repetition penalty r (Keskar et al. 2019, CTRL). Tokens of the prompt do not count.
// The time grows with the number of listed and generated tokens, not with the vocabulary.
#pragma once

#include <span>

#include "mlc_native/config.h"
#include "mlc_native/detail/export.h"
#include "sampling/token_counts.h"

namespace mlc_native {

MLC_NATIVE_PRIVATE_API bool HasPenalties(const GenerationConfig& config);

// True if ApplyLogitBiasAndPenalties would change a logit.
bool HasLogitBiasOrPenalties(const GenerationConfig& config, TokenCountsView generated);

// Requires: token ids are in [0, logits.size()); Validate and sampling ensure it.
void ApplyLogitBiasAndPenalties(std::span<float> logits, const GenerationConfig& config,
                                TokenCountsView generated);

}  // namespace mlc_native
