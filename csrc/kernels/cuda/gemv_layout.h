// How the k of a step lie among lanes, for PackGemvWeights and the kernels (gemv_formats.cuh).
#pragma once

#include "kernels/cuda/products.h"

namespace mlc_native::kernels::cuda {

inline constexpr int kBlock = 32;                                     // k
inline constexpr int kBlocks = static_cast<int>(kGemvStep) / kBlock;  // of a step
inline constexpr int kRowLanes = 4;                                   // that share a row

}  // namespace mlc_native::kernels::cuda
