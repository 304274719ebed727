// Which tokens the options of a request forbid at one place of its answer. Pure; any thread.
//
// They become a mask of the row before the draw, like the mask of a grammar, so every device that
// takes masks takes them. Such an option is declared with Field::ForbidsTokens, and applied here
// alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "mlc_native/detail/generation_config.h"

namespace mlc_native {

// The place in a sequence where a token is drawn.
struct TokenHistory {
  // The tokens before it, first those of the prompt. If the limits do not depend on them, only
  // their number counts, and the last ones may be missing.
  std::span<const int32_t> tokens;
  int64_t prompt_len = 0;
  int64_t num_generated = 0;  // tokens of the answer before it

  std::span<const int32_t> generated() const {
    return tokens.subspan(std::min(static_cast<size_t>(prompt_len), tokens.size()));
  }
};

// Whether anything is forbidden behind `num_generated` tokens of the answer. If not, nothing is
// behind more tokens either.
bool LimitsTokens(const GenerationConfig& config, int64_t num_generated);

// Whether what is forbidden depends on the tokens before, not only on their number.
bool LimitsDependOnTokens(const GenerationConfig& config);

// Clears the bits of the forbidden tokens; bit t % 32 of mask[t / 32] is token t. `eos_token_ids`
// are those of the model.
void ForbidByLimits(const GenerationConfig& config, std::span<const int32_t> eos_token_ids,
                    const TokenHistory& history, std::span<int32_t> mask);

}  // namespace mlc_native
