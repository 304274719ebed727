// Sums and maxima over the threads of a warp or block, in an order that depends only on the number
// of threads.
#pragma once

#include "kernels/cuda/device.cuh"

namespace mlc_native::kernels::cuda {

struct Plus {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// All lanes of each group of `lanes` neighbours (a power of two) get the result.
template <int lanes = kWarp, typename T, typename Op>
__device__ inline T ReduceWarp(T value, const Op& op) {
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    value = op(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

// All threads get the result; `shared` has room for one value per warp, and may be used again
// behind the next barrier. kWarps: of the block, if that is known.
template <int kWarps = 0, typename T, typename Op>
__device__ inline T ReduceBlock(T value, const Op& op, T* shared) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int num_warps = kWarps > 0 ? kWarps : static_cast<int>(blockDim.x) / kWarp;
  value = ReduceWarp(value, op);
  if (threadIdx.x % kWarp == 0) shared[warp] = value;
  __syncthreads();
  value = shared[0];
  for (int i = 1; i < num_warps; ++i) value = op(value, shared[i]);
  return value;
}

}  // namespace mlc_native::kernels::cuda
