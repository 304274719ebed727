// Launches in which each thread has an item of its own.
#pragma once

#include "kernels/cuda/device.cuh"

namespace mlc_native::kernels::cuda {

__device__ inline int64_t GlobalThread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

inline LaunchShape OneThreadEach(int64_t items, unsigned threads = 256) {
  return {.grid = dim3(static_cast<unsigned>((items + threads - 1) / threads)), .threads = threads};
}

}  // namespace mlc_native::kernels::cuda
