// Kernels that measure the machine rather than a model. Each follows the rules of device.cuh.
#pragma once

#include <cstdint>

#include "kernels/cuda/kernels.h"

namespace mlc_native::kernels::cuda {

// A kernel of so many blocks that adds 1 to a word and does nothing else.
void LaunchStep(int32_t* counter, int blocks, Stream stream);

// `blocks` blocks, at most one for each multiprocessor, that meet `rounds` times. Requires:
// *counter is 0; it is `blocks * rounds` afterwards.
void LaunchBarriers(int32_t* counter, int blocks, int rounds, Stream stream);

// Reads `bytes` (a multiple of 16) `rounds` times, each time all of them, with `loads` (1, 2, 4 or
// 8) loads of 16 bytes in flight per thread, as weights are read. out: [NumReadBlocks()] sums.
int NumReadBlocks();
void LaunchRead(const void* data, int64_t bytes, int rounds, int loads, int32_t* out,
                Stream stream);

}  // namespace mlc_native::kernels::cuda
