// Finds the threshold of a truncation, with one block and without sorting.
//
// Keys are 32 bits. A radix select processes 8 bits at a time: it sums a measure (1 each, or
// weights) of the keys by their next digit. All sums are integers, so the order in which threads
// add does not matter.
#pragma once

#include "kernels/cuda/sampling_row.cuh"

namespace mlc_native::kernels::cuda {

inline constexpr int kDigits = 256;

struct SelectShared {
  Sum64 sums[kDigits];
  uint64_t warps[kSampleWarps];
  uint32_t digit;
  uint64_t above;
};

struct Or {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a | b; }
};

// The smallest key with which those of the largest keys reach `goal`, and what the larger ones
// have.
struct Selected {
  uint32_t key;
  uint64_t above;
};

// item(i, &key) returns the measure of item i; those of 0 are none. `above`: what keys that are
// larger than all these have. Requires: above < goal <= above + the sum of all measures. All
// threads of a block of kSampleThreads.
template <typename Item>
__device__ Selected SelectKey(int64_t size, uint64_t above, uint64_t goal, SelectShared& shared,
                              const Item& item) {
  // Digits in front of the first in which keys differ are those of all: mostly two.
  uint32_t first = 0;
  item(0, &first);
  uint64_t differs = 0;
#pragma unroll 1
  for (int64_t i = threadIdx.x; i < size; i += kSampleThreads) {
    uint32_t key = 0;
    item(i, &key);
    differs |= key ^ first;
  }
  __syncthreads();  // warps are read behind the last call's use of them
  differs = ReduceBlock(differs, Or(), shared.warps);
  int shift = 24;
  while (shift >= 0 && differs >> shift == 0) shift -= 8;
  uint32_t prefix = shift == 24 ? 0 : first & ~uint32_t{0} << (shift + 8);
#pragma unroll 1
  for (; shift >= 0; shift -= 8) {
    const uint32_t known = shift == 24 ? 0 : ~uint32_t{0} << (shift + 8);
    static_assert(kDigits == kSampleThreads);
    shared.sums[threadIdx.x].Clear();
    __syncthreads();
#pragma unroll 1
    for (int64_t i = threadIdx.x; i < size; i += kSampleThreads) {
      uint32_t key = 0;
      const uint64_t measure = item(i, &key);
      if (measure != 0 && (key & known) == prefix) {
        shared.sums[key >> shift & (kDigits - 1)].Add(measure);
      }
    }
    __syncthreads();
    if (threadIdx.x < kWarp) {  // the largest digit at which the sum from the top reaches the goal
      constexpr int kPerLane = kDigits / kWarp;
      const int top = kDigits - 1 - static_cast<int>(threadIdx.x) * kPerLane;
      uint64_t sum = 0;
      for (int i = 0; i < kPerLane; ++i) sum += shared.sums[top - i].Get();
      uint64_t before = above + SumOfLanesBefore(sum);
      if (before < goal && before + sum >= goal) {
        int digit = top;
        while (before + shared.sums[digit].Get() < goal) before += shared.sums[digit--].Get();
        shared.digit = static_cast<uint32_t>(digit);
        shared.above = before;
      }
    }
    __syncthreads();
    prefix |= shared.digit << shift;
    above = shared.above;
  }
  return {prefix, above};
}

// Of all threads' values; all get the result.
__device__ inline uint64_t SumBlock(uint64_t value, SelectShared& shared) {
  __syncthreads();  // warps are read behind the last call's use of them
  return ReduceBlock(value, Plus(), shared.warps);
}

// What the threads before this one have, added up; `*total`: all.
__device__ inline uint64_t SumOfThreadsBefore(uint64_t value, uint64_t* total,
                                              SelectShared& shared) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  uint64_t before = SumOfLanesBefore(value);
  __syncthreads();
  if (threadIdx.x % kWarp == kWarp - 1) shared.warps[warp] = before + value;
  __syncthreads();
  uint64_t all = 0;
#pragma unroll
  for (int w = 0; w < kSampleWarps; ++w) {
    if (w == warp) before += all;
    all += shared.warps[w];
  }
  *total = all;
  return before;
}

}  // namespace mlc_native::kernels::cuda
