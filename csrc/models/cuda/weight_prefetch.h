// WeightPrefetch says which weights a product of a decode step asks into the level-2 cache for the
// products behind it, so that the memory works while kernels change and attention waits.
//
// The matrices of a step that every row reads lie on an axis, in the order of their products. A
// product asks for what lies within a window behind its own weight and was not asked for before, so
// each byte is asked for once a step at most, in front of its use. Experts end a window: which of
// them are read is known too late, and they push out of the cache what comes behind them.
//
// What is asked for must fit into the cache together with what passes through it until it is used,
// so windows are small, and that in front of attention, which reads no weights, is the largest.
// Immutable; `Cursor` is of one forward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/kernels.h"
#include "models/cuda/cuda_weights.h"

namespace mlc_native {

class WeightPrefetch {
 public:
  // `window` is that of products in front of attention, in bytes; others have the half. 0: none
  // asks.
  WeightPrefetch(const CudaDecoderWeights& weights, int64_t window);

  // How far the forward has asked.
  using Cursor = int64_t;

  // Sets args.prefetches of a product. Requires: it is kQkv or kOut, or kGateUp or kDown of a layer
  // without experts. The products of a forward come in their order.
  void Ask(size_t layer, LinearRole role, Cursor* cursor, kernels::cuda::GemvArgs* args) const;

 private:
  static constexpr int64_t kAlign = 256;  // of weights and windows
  struct Part {
    const std::byte* data = nullptr;
    int64_t bytes = 0;
    int64_t begin = 0;  // on the axis
    int64_t end = 0;
  };

  const int64_t window_;
  std::vector<Part> parts_;
  std::vector<size_t> first_parts_;  // of each layer
};

}  // namespace mlc_native
