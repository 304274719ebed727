// The sizes of a block of LatentWorker, and what it has in shared memory.
#pragma once

#include "kernels/cuda/decode_finish.cuh"
#include "kernels/cuda/latent.h"
#include "kernels/cuda/numbers.cuh"

namespace mlc_native::kernels::cuda {

// kTilesOfRows: of 16 rows. kAreApart: the values, from the keys.
template <int kTilesOfRows, int64_t kMaxDim, bool kAreApart>
struct LatentWorkerShape {
  static constexpr bool kValuesApart = kAreApart;
  static constexpr int kRowTiles = kTilesOfRows;
  static constexpr int kRows = 16 * kTilesOfRows;
  static constexpr int kWarps = 8;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kBlocks = kTilesOfRows == 1 ? 2 : 1;  // of a multiprocessor
  static constexpr int kKeys = 32;                           // of a step: a lane has one
  static constexpr int kDim = static_cast<int>(kMaxDim);
  static constexpr int kQuarters = 4;  // of a key

  // Keys of 8 bits, and their scales; or keys, and values that lie apart.
  struct NarrowKeys {
    Float8 keys[2][kKeys][kDim];
    float scales[2][kKeys];
  };
  struct None {};
  // Of keys that may be multiplied: those of a step, and of 16 bits also those on their way. Or of
  // keys, and of values that lie apart.
  template <typename Kv>
  static constexpr int kPlaces = kHasKvScales<Kv> ? 1 : 2;

  // Rows of all arrays begin in different banks. At first, the queries are in the last place.
  template <typename T, typename Kv>
  struct Shared {
    alignas(16) T keys[kPlaces<Kv>][kKeys][kDim + 8];
    alignas(16) std::conditional_t<kHasKvScales<Kv>, NarrowKeys, None> narrow;
    alignas(16) float scores[kQuarters][kRows][kKeys + 8];
    alignas(16) T weights[kRows][kKeys + 8];
    float factors[kRows];  // of the sums so far
    alignas(16) SoftmaxOfHead softmax[kRows];
  };
};
template <int kTilesOfRows>
struct LatentShape : LatentWorkerShape<kTilesOfRows, kMaxLatentDim + kMaxLatentRopeDim, false> {};
template <int kTilesOfRows>
struct WideShape : LatentWorkerShape<kTilesOfRows, kMaxWideHeadDim, true> {};
static_assert(kMaxWideHeadDim == kMaxLatentDim, "they are as many columns of values");

}  // namespace mlc_native::kernels::cuda
