// The first launch of SampleTokens. It applies bias, penalties and mask in place and computes the
// maximum of each chunk with its first position, whether the chunk has a NaN or +inf, and for
// logprobs the sum of e^x and a copy of the model's row. The row is read and written once.
#pragma once

#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {

inline constexpr int kScanThreads = 256;
inline constexpr int kChunk = 1024;  // tokens of a block of the scan
inline constexpr int32_t kNoToken = 0x7fffffff;

// Of some tokens of a row.
struct Scan {
  float max = -INFINITY;
  int32_t first = kNoToken;  // token of the maximum
  int32_t is_bad = 0;
  float raw_max = -INFINITY;  // before bias, penalties and mask; of rows with logprobs
  float raw_sum = 0.0f;       // of e^(x - raw_max)

  __device__ void Add(float value, int32_t token) {
    if (value > max || (value == max && token < first)) {
      max = value;
      first = token;
    }
  }
  __device__ void Merge(const Scan& other) {
    Add(other.max, other.first);
    is_bad |= other.is_bad;
    const float new_max = fmaxf(raw_max, other.raw_max);
    if (new_max == -INFINITY) return;
    raw_sum = raw_sum * expf(raw_max - new_max) + other.raw_sum * expf(other.raw_max - new_max);
    raw_max = new_max;
  }
};

// All threads get the result.
__device__ inline Scan MergeBlock(Scan scan, Scan* shared) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    Scan other;
    other.max = __shfl_xor_sync(kAllLanes, scan.max, distance);
    other.first = __shfl_xor_sync(kAllLanes, scan.first, distance);
    other.is_bad = __shfl_xor_sync(kAllLanes, scan.is_bad, distance);
    other.raw_max = __shfl_xor_sync(kAllLanes, scan.raw_max, distance);
    other.raw_sum = __shfl_xor_sync(kAllLanes, scan.raw_sum, distance);
    scan.Merge(other);
  }
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = scan;
  __syncthreads();
  scan = shared[0];
  for (int i = 1; i < static_cast<int>(blockDim.x) / kWarp; ++i) scan.Merge(shared[i]);
  return scan;
}

struct SampleKernelArgs {
  SampleArgs a;
  int64_t chunks;  // of a row
  Scan* scans;     // [m, chunks]
  float* raw;      // [m, vocab]: the logits before they are changed, of rows with logprobs
};

__device__ inline float Penalized(const SamplingRow& row, float logit, int32_t count) {
  if (count == 0 || !isfinite(logit))
    return logit;  // -inf stays forbidden, a NaN is reported later
  float value = logit - row.presence_penalty - static_cast<float>(count) * row.frequency_penalty;
  value = value > 0 ? value / row.repetition_penalty : value * row.repetition_penalty;
  constexpr float kMax = 3.402823466e38f;
  return fminf(fmaxf(value, -kMax), kMax);
}

// Bias, then penalties, of those of the row's tokens that lie in chunk `chunk`. Each list's tokens
// are distinct, so no two threads of a part meet. All threads of a block.
__device__ inline void AdjustChunk(const SamplingRow& row, int64_t chunk, float* logits) {
  const auto first = static_cast<int>(threadIdx.x);
  for (int i = first; i < row.num_bias; i += kScanThreads) {
    const int64_t token = row.bias_ids[i];
    if (token / kChunk == chunk) logits[token] += row.bias_values[i];
  }
  __syncthreads();
  const int32_t pending = row.pending == nullptr ? -1 : *row.pending;
  int is_counted = 0;  // whether the list has the pending token, too
  for (int i = first; i < row.num_counts; i += kScanThreads) {
    const int32_t token = row.count_ids[i];
    if (token == pending) is_counted = 1;
    if (token / kChunk != chunk) continue;
    const int32_t count = row.count_values[i] + (token == pending ? 1 : 0);
    logits[token] = Penalized(row, logits[token], count);
  }
  is_counted = __syncthreads_or(is_counted);
  if (first == 0 && is_counted == 0 && pending >= 0 && pending / kChunk == chunk) {
    logits[pending] = Penalized(row, logits[pending], 1);
  }
  __syncthreads();
}

// The lowest bit says whether the token is allowed.
__device__ inline uint32_t AllowedFrom(const SamplingRow& row, int64_t token) {
  return row.mask == nullptr ? 1u : static_cast<uint32_t>(row.mask[token / 32]) >> (token % 32);
}

// Block (x, y): chunk x of row y.
static __global__ void __launch_bounds__(kScanThreads)
    ScanKernel(const __grid_constant__ SampleKernelArgs args) {
  WaitForPrevious();
  __shared__ float warp_max[kScanThreads / kWarp];
  alignas(Scan) __shared__ unsigned char warp_scans[kScanThreads / kWarp * sizeof(Scan)];
  const SamplingRow row = args.a.rows[blockIdx.y];  // read once: logits may be anywhere
  float* logits = args.a.logits + blockIdx.y * args.a.ld;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kChunk + threadIdx.x;
  const int64_t end = min(static_cast<int64_t>(blockIdx.x + 1) * kChunk, args.a.vocab);

  Scan scan;
  if (row.logprobs) {
    float max = -INFINITY;
    for (int64_t i = begin; i < end; i += kScanThreads) {
      args.raw[blockIdx.y * args.a.vocab + i] = logits[i];
      max = fmaxf(max, logits[i]);
      if (!(logits[i] < INFINITY)) scan.is_bad = 1;
    }
    scan.raw_max = ReduceBlock(max, Max(), warp_max);
    for (int64_t i = begin; i < end; i += kScanThreads) {
      if (logits[i] > -INFINITY) scan.raw_sum += expf(logits[i] - scan.raw_max);
    }
  }
  __syncthreads();  // all have read what is changed now
  AdjustChunk(row, blockIdx.x, logits);
  // All are loaded before any of them is needed; behind the last token there is the last one.
  constexpr int kTokens = kChunk / kScanThreads;  // of a thread
  float values[kTokens];
  uint32_t allowed[kTokens];
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const int64_t i = min(begin + t * kScanThreads, args.a.vocab - 1);
    values[t] = logits[i];
    allowed[t] = AllowedFrom(row, i);
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const int64_t i = begin + t * kScanThreads;
    if (i >= end) continue;
    if ((allowed[t] & 1u) == 0 && !(values[t] == -INFINITY)) {
      values[t] = -INFINITY;
      logits[i] = -INFINITY;
    }
    if (!(values[t] < INFINITY)) scan.is_bad = 1;  // NaN, too
    scan.Add(values[t], static_cast<int32_t>(i));
  }
  scan = MergeBlock(scan, reinterpret_cast<Scan*>(warp_scans));
  if (threadIdx.x == 0) args.scans[blockIdx.y * args.chunks + blockIdx.x] = scan;
}

}  // namespace mlc_native::kernels::cuda
