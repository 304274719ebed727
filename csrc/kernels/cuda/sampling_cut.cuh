// The second launch of SampleTokens, for rows with top-k or top-p. It adds up what each of kCutBins
// bins has, tokens for top-k or else weights, and finds the bin in which the cut lies (CutPlan).
#pragma once

#include "kernels/cuda/row_select.cuh"

namespace mlc_native::kernels::cuda {

// What top-p keeps at least of `total`.
__device__ inline uint64_t GoalOf(const SamplingRow& row, uint64_t total) {
  const auto mass =
      static_cast<uint64_t>(static_cast<double>(row.top_p) * static_cast<double>(total));
  return mass > 0 ? mass : 1;
}

// From the bins of a row, which all blocks have added to. All threads of a block.
__device__ inline void PlanCut(const SampleKernelArgs& args, int64_t row, SelectShared& shared) {
  constexpr int kPerThread = kCutBins / kSampleThreads;
  const SamplingRow& settings = args.a.rows[row];
  const auto thread = static_cast<int>(threadIdx.x);
  uint64_t sums[kPerThread];
  uint64_t sum = 0;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    sums[i] = LoadOthers(&args.bins[row * kCutBins + thread * kPerThread + i]);
    sum += sums[i];
  }
  uint64_t total = 0;
  uint64_t before = SumOfThreadsBefore(sum, &total, shared);
  const bool has_top_k = HasTopK(settings, args.a.vocab);
  const bool lists_all = has_top_k && settings.top_p < 1.0f;  // that top-k keeps
  const auto k = static_cast<uint64_t>(settings.top_k);
  if (has_top_k && total <= k) {
    if (thread == 0 && lists_all) {
      args.states[row].plan = {.list_from = 0, .list_to = kCutBins - 1, .goal = total};
    }
    return;
  }
  const uint64_t goal = has_top_k ? k : GoalOf(settings, total);
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    if (before < goal && before + sums[i] >= goal) {
      const auto bin = static_cast<uint32_t>(thread * kPerThread + i);
      args.states[row].plan = {.list_from = lists_all ? 0 : bin,
                               .list_to = bin,
                               .above = lists_all ? 0 : before,
                               .goal = goal};
    }
    before += sums[i];
  }
}

// Block (x, y): every gridDim.x-th piece of row y.
static __global__ void __launch_bounds__(kSampleThreads)
    CutKernel(const __grid_constant__ SampleKernelArgs args) {
  WaitForPrevious();
  const int64_t row = blockIdx.y;
  const SamplingRow& settings = args.a.rows[row];
  if (!IsCut(settings, args.a.vocab)) return;
  alignas(Sum64) __shared__ unsigned char sums_bytes[kCutBins * sizeof(Sum64)];
  alignas(SelectShared) __shared__ unsigned char select_bytes[sizeof(SelectShared)];
  alignas(MergeShared) __shared__ unsigned char merge_bytes[sizeof(MergeShared)];
  __shared__ int32_t is_last;
  auto* sums = reinterpret_cast<Sum64*>(sums_bytes);
  Pieces pieces(args, args.a.logits + row * args.a.ld);
  const auto thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kCutBins; i += kSampleThreads) sums[i].Clear();
  const Scan scan = MergeRow(args, row, *reinterpret_cast<MergeShared*>(merge_bytes));
  if (scan.is_bad != 0 || scan.max == -INFINITY) return;
  const TokenWeights weights(settings, scan);
  const bool counts_tokens = HasTopK(settings, args.a.vocab);
  pieces.ForEach([&](int64_t, const LaneLogits& logits) {
#pragma unroll
    for (int p = 0; p < LaneLogits::kParts; ++p) {  // of which no addition waits for another
      uint64_t values[4];
      uint32_t bins[4];
      uint32_t high[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float exponent = weights.Exponent(logits[4 * p + i]);
        values[i] = TokenWeights::OfExponent(exponent);
        // Lanes add nothing to different bins.
        bins[i] = values[i] != 0 ? weights.Bin(exponent) : static_cast<uint32_t>(thread % kWarp);
        if (counts_tokens && values[i] != 0) values[i] = 1;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) high[i] = sums[bins[i]].AddLow(values[i]);
#pragma unroll
      for (int i = 0; i < 4; ++i) high[i] = Sum64::HighOf(values[i], high[i]);
      if ((high[0] | high[1] | high[2] | high[3]) == 0) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (high[i] != 0) sums[bins[i]].AddHigh(high[i]);
      }
    }
  });
  __syncthreads();
  for (int i = thread; i < kCutBins; i += kSampleThreads) {
    const uint64_t sum = sums[i].Get();
    if (sum != 0) {
      atomicAdd(&args.bins[row * kCutBins + i], static_cast<unsigned long long>(sum));
    }
  }
  if (IsLastOfRow(&args.states[row].num_cut, &is_last)) {
    PlanCut(args, row, *reinterpret_cast<SelectShared*>(select_bytes));
  }
}

}  // namespace mlc_native::kernels::cuda
