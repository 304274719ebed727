// The infinity that rows of logits in tests hold.
#pragma once

#include <limits>

namespace mlc_native {

inline constexpr float kInf = std::numeric_limits<float>::infinity();

}  // namespace mlc_native
