// The first launch of SampleTokens. It applies bias, penalties and mask in place and summarizes
// each chunk: its maximum with its first position, its minimum, whether it has a NaN or +inf, and
// for logprobs the sum of e^x and a copy of the model's row. The row is read once, and written
// where it changes.
#pragma once

#include "kernels/cuda/sampling_row.cuh"

namespace mlc_native::kernels::cuda {

__device__ inline float Penalized(const SamplingRow& row, float logit, int32_t count) {
  if (count == 0 || !isfinite(logit))
    return logit;  // -inf stays forbidden, a NaN is reported later
  float value = logit - row.presence_penalty - static_cast<float>(count) * row.frequency_penalty;
  value = value > 0 ? value / row.repetition_penalty : value * row.repetition_penalty;
  constexpr float kMax = 3.402823466e38f;
  return fminf(fmaxf(value, -kMax), kMax);
}

// Bias, then penalties, of those of the row's tokens that lie in piece `piece`. Each list's tokens
// are distinct, so no two threads of a part meet. All threads of a block.
__device__ inline void AdjustPiece(const SamplingRow& row, int64_t piece, float* logits) {
  constexpr int kPiece = kSampleWarps * kChunk;
  const auto first = static_cast<int>(threadIdx.x);
  for (int i = first; i < row.num_bias; i += kSampleThreads) {
    const int64_t token = row.bias_ids[i];
    if (token / kPiece == piece) logits[token] += row.bias_values[i];
  }
  __syncthreads();
  const int32_t pending = row.pending == nullptr ? -1 : *row.pending;
  int is_counted = 0;  // whether the list has the pending token, too
  for (int i = first; i < row.num_counts; i += kSampleThreads) {
    const int32_t token = row.count_ids[i];
    if (token == pending) is_counted = 1;
    if (token / kPiece != piece) continue;
    const int32_t count = row.count_values[i] + (token == pending ? 1 : 0);
    logits[token] = Penalized(row, logits[token], count);
  }
  is_counted = __syncthreads_or(is_counted);
  if (first == 0 && is_counted == 0 && pending >= 0 && pending / kPiece == piece) {
    logits[pending] = Penalized(row, logits[pending], 1);
  }
  __syncthreads();
}

// Of a chunk whose logits are loaded; copies them. True where one is a NaN or +inf.
__device__ inline bool ScanRaw(const SampleKernelArgs& args, int64_t row, int64_t chunk,
                               const LaneLogits& logits) {
  auto* raw = reinterpret_cast<uint4*>(args.raw + row * args.ld_raw);
  const auto last = static_cast<int>((args.a.vocab - 1) / 4);
#pragma unroll
  for (int p = 0; p < LaneLogits::kParts; ++p) {
    const int part = LaneLogits::Part(chunk, p);
    if (part <= last) raw[part] = logits.parts[p];
  }
  RawScan scan;
  bool is_bad = false;
#pragma unroll
  for (int i = 0; i < kLaneTokens; ++i) {
    scan.max = fmaxf(scan.max, logits[i]);
    if (!(logits[i] < INFINITY)) is_bad = true;
  }
  scan.max = ReduceWarp(scan.max, Max());
#pragma unroll
  for (int i = 0; i < kLaneTokens; ++i) {
    if (logits[i] > -INFINITY) scan.sum += expf(logits[i] - scan.max);
  }
  scan.sum = ReduceWarp(scan.sum, Plus());
  if (threadIdx.x % kWarp == 0 && chunk < args.chunks) {
    args.raw_scans[row * args.chunks + chunk] = scan;
  }
  return is_bad;
}

// -inf for the tokens of a chunk that the mask forbids, here and in memory.
__device__ inline void ApplyMask(const SampleKernelArgs& args, const int32_t* mask, int64_t chunk,
                                 float* row, LaneLogits* logits) {
  const auto last = static_cast<int>((args.a.vocab - 1) / 4);
  uint32_t allowed[LaneLogits::kParts];
#pragma unroll
  for (int p = 0; p < LaneLogits::kParts; ++p) {
    const int token = min(LaneLogits::Part(chunk, p), last) * 4;
    allowed[p] = static_cast<uint32_t>(mask[token / 32]) >> (token % 32);
  }
#pragma unroll
  for (int p = 0; p < LaneLogits::kParts; ++p) {
    const uint4 before = logits->parts[p];
    const auto masked = [&](uint32_t value, int i) {
      return (allowed[p] >> i & 1u) != 0 ? value : __float_as_uint(-INFINITY);
    };
    logits->parts[p] = {masked(before.x, 0), masked(before.y, 1), masked(before.z, 2),
                        masked(before.w, 3)};
    if ((allowed[p] & 15u) != 15u && LaneLogits::Part(chunk, p) <= last) {
      reinterpret_cast<uint4*>(row)[LaneLogits::Part(chunk, p)] = logits->parts[p];
    }
  }
}

// Block (x, y): every gridDim.x-th piece of row y.
static __global__ void __launch_bounds__(kSampleThreads)
    ScanKernel(const __grid_constant__ SampleKernelArgs args) {
  WaitForPrevious();
  const int64_t row = blockIdx.y;
  const SamplingRow& settings = args.a.rows[row];
  float* logits = args.a.logits + row * args.a.ld;
  Pieces pieces(args, logits);
  for (int i = static_cast<int>(blockIdx.x * kSampleThreads + threadIdx.x); i < kCutBins;
       i += static_cast<int>(gridDim.x) * kSampleThreads) {
    args.bins[row * kCutBins + i] = 0;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) args.states[row] = RowState{};
  pieces.ForEach([&](int64_t piece, LaneLogits values) {
    const int64_t chunk = ChunkOf(piece);
    bool is_bad = settings.logprobs && ScanRaw(args, row, chunk, values);
    if (settings.num_bias > 0 || settings.num_counts > 0 || settings.pending != nullptr) {
      __syncthreads();  // all have read what is changed now
      AdjustPiece(settings, piece, logits);
      values = LaneLogits(logits, args.a.vocab, chunk);
      values.EndAt(args.a.vocab, chunk);
    }
    if (settings.mask != nullptr) ApplyMask(args, settings.mask, chunk, logits, &values);
    Scan scan;
#pragma unroll
    for (int i = 0; i < kLaneTokens; ++i) {
      if (!(values[i] < INFINITY)) is_bad = true;  // NaN, too
      scan.Add(values[i], LaneLogits::Token(chunk, i));
    }
    scan.is_bad = is_bad ? 1 : 0;
    scan = MergeWarp(scan);
    if (threadIdx.x % kWarp == 0 && chunk < args.chunks) {
      args.scans[row * args.chunks + chunk] = scan;
    }
  });
}

}  // namespace mlc_native::kernels::cuda
