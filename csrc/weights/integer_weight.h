// A weight whose tensor has integers: numbers of something, such as experts of tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "weights/weight_source.h"

namespace mlc_native {

// The integers as floats. Throws LoadError unless the tensor is I64 or I32 of this shape; loading
// it throws one unless all are in [0, count). Requires: count is at most 2^24.
std::unique_ptr<WeightSource> OpenIntegers(const Checkpoint::Entry& entry,
                                           std::span<const int64_t> shape, int64_t count);

}  // namespace mlc_native
