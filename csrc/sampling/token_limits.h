// Which tokens the settings of a request forbid at one place of its answer: min_tokens,
// allowed_token_ids and bad_words. Pure; any thread.
//
// They become a mask of the row before the draw, like the mask of a grammar, so every device that
// takes masks takes them.
#pragma once

#include <cstdint>
#include <span>

#include "mlc_native/detail/generation_config.h"

namespace mlc_native {

// Whether anything is forbidden behind `num_generated` tokens of the answer.
bool LimitsTokens(const GenerationConfig& config, int64_t num_generated);

// Whether what is forbidden depends on the tokens of the answer, not only on their number.
bool LimitsDependOnTokens(const GenerationConfig& config);

// Clears the bits of the forbidden tokens; bit t % 32 of mask[t / 32] is token t. `generated` is
// the answer so far; if the limits do not depend on it, only its length counts and it may be
// shorter than `num_generated`. `eos_token_ids` are those of the model.
void ForbidByLimits(const GenerationConfig& config, std::span<const int32_t> eos_token_ids,
                    std::span<const int32_t> generated, int64_t num_generated,
                    std::span<int32_t> mask);

}  // namespace mlc_native
