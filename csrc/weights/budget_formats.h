// The formats of matrices within a budget of bits per weight. Pure; any thread.
//
// The bits of a format are those of a weight with its part of a scale (MillibitsOf), whatever the
// shape of its matrix, and the budget bounds their mean over all weights that are quantized: not
// tables of embeddings, vectors or routers.
//
// All matrices begin in the narrowest format. Then they get wider ones in the order of
// OrderOfWidening, until one has no room. So the formats depend on names and shapes only, and more
// bits never make a matrix narrower.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "mlc_native/detail/export.h"
#include "weights/weight_map.h"

namespace mlc_native {

// Thousandths of a bit that a weight of this format takes.
MLC_NATIVE_PRIVATE_API int64_t MillibitsOf(kernels::WeightFormat format);

// Parameters that get format number `to` together, in place of the one before it.
struct Widening {
  std::vector<size_t> parameters;
  int64_t size = 0;  // weights
  size_t to = 1;
};

// All steps from the first of num_formats (2 or 3) to the last, those first that save most per bit
// (bench/results/quality.md):
//   1. the head and the first layer, the smaller of both first,
//   2. attention of the other layers,
//   3. the head and the first layer once more,
//   4. the other layers' feed-forward blocks and experts,
//   5. all of 2 and 4 once more.
// Of layers, all outputs of attention come before all inputs, then what leaves feed-forward blocks,
// then what enters them, then experts. All experts of a layer are widened together.
MLC_NATIVE_PRIVATE_API std::vector<Widening> OrderOfWidening(const WeightMap& map,
                                                             size_t num_formats);

// Of each parameter; those that no budget is for have formats.front(). Requires: `formats` are of
// ascending bits, and the budget is at least those of the first one.
MLC_NATIVE_PRIVATE_API std::vector<kernels::WeightFormat> FormatsWithin(
    const WeightMap& map, int64_t millibits, std::span<const kernels::WeightFormat> formats);

}  // namespace mlc_native
