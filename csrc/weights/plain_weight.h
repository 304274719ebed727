// Weights that a checkpoint stores as floats, alone or joined with others in one tensor. Any
// thread.
#pragma once

#include <memory>
#include <span>

#include "weights/weight_source.h"

namespace mlc_native {

// Weight `index` of those of `shape` that the entry joins. Requires: it is of floats and has it.
std::unique_ptr<WeightSource> OpenPlain(const Checkpoint::Entry& entry,
                                        std::span<const int64_t> shape, int64_t index);

// The weight of `shape` whose transpose is stored.
std::unique_ptr<WeightSource> Transposed(std::unique_ptr<WeightSource> stored,
                                         std::span<const int64_t> shape);

// The rows of `stored`, whose rows alternate (JoinedPlace), in their own order.
std::unique_ptr<WeightSource> InOrder(std::unique_ptr<WeightSource> stored,
                                      std::span<const int64_t> shape);

}  // namespace mlc_native
