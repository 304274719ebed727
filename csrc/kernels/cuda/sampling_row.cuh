// What the launches of SampleTokens share: the parts of a row, what is known of them, and the
// weights of tokens.
//
// A row is divided into chunks of kChunk tokens, which a warp takes at once, and these into pieces
// of kSampleWarps chunks, which a block takes at once. A row has several blocks, each with every
// so-manieth piece; how many depends on the number of rows and changes no result.
#pragma once

#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/sample_tokens.h"

namespace mlc_native::kernels::cuda {

inline constexpr int kSampleWarps = 8;
inline constexpr int kSampleThreads = kSampleWarps * kWarp;
inline constexpr int kChunk = 512;
inline constexpr int kLaneTokens = kChunk / kWarp;  // of a chunk
inline constexpr int kCutBins = 1024;               // of a row's weights (sampling_cut.cuh)
inline constexpr int kMaxListed = 4096;             // tokens of a row near its cut
inline constexpr int32_t kNoToken = 0x7fffffff;

// Of some tokens of a row.
struct alignas(16) Scan {
  float max = -INFINITY;
  float min = INFINITY;      // of those above -inf
  int32_t first = kNoToken;  // token of the maximum
  int32_t is_bad = 0;

  __device__ void Add(float value, int32_t token) {
    if (value > max || (value == max && token < first)) {
      max = value;
      first = token;
    }
    if (value > -INFINITY) min = fminf(min, value);
  }
  // As it lies in memory.
  __device__ static Scan Of(const uint4& words) {
    return {__uint_as_float(words.x), __uint_as_float(words.y), static_cast<int32_t>(words.z),
            static_cast<int32_t>(words.w)};
  }
  __device__ void Merge(const Scan& other) {
    Add(other.max, other.first);
    min = fminf(min, other.min);
    is_bad |= other.is_bad;
  }
};

// The same of rows with logprobs, before bias, penalties and mask.
struct alignas(8) RawScan {
  float max = -INFINITY;
  float sum = 0.0f;  // of e^(x - max)

  __device__ void Merge(const RawScan& other) {
    const float new_max = fmaxf(max, other.max);
    if (new_max == -INFINITY) return;
    sum = sum * expf(max - new_max) + other.sum * expf(other.max - new_max);
    max = new_max;
  }
};

// Which tokens of a row are kept: those in bins in front of `list_from`, none in bins behind
// `list_to`, and some of those between, which are listed.
struct CutPlan {
  uint32_t list_from = kCutBins;
  uint32_t list_to = kCutBins;
  uint64_t above = 0;  // what the bins in front of list_from have of the goal
  uint64_t goal = 0;   // tokens with top-k, else weight
};

// A row's counters, and its plan.
struct RowState {
  int32_t num_cut;    // blocks that have counted
  int32_t num_drawn;  // blocks that have listed
  int32_t num_listed;
  CutPlan plan;
};

struct SampleKernelArgs {
  SampleArgs a;
  int64_t chunks;  // of a row
  int64_t pieces;
  int64_t ld_raw;
  Scan* scans;               // [m, chunks]
  RawScan* raw_scans;        // [m, chunks]
  uint64_t* sums;            // [m, chunks]: weights of tokens that are kept and not listed
  unsigned long long* bins;  // [m, kCutBins]
  RowState* states;          // [m]
  float* listed_logits;      // [m, kMaxListed]
  int32_t* listed_ids;       // [m, kMaxListed]
  float* raw;                // [m, ld_raw]: logits before they are changed, rows with logprobs
};

// Bits that order like the floats do (no NaN).
__device__ inline uint32_t OrderedBits(float x) {
  const uint32_t bits = __float_as_uint(x);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float FromOrderedBits(uint32_t bits) {
  return __uint_as_float((bits & 0x80000000u) != 0 ? bits & 0x7fffffffu : ~bits);
}

// What the lanes before this one have, added up.
__device__ inline uint64_t SumOfLanesBefore(uint64_t value) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  uint64_t sum = value;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const uint64_t other = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane >= distance) sum += other;
  }
  return sum - value;
}

// A lane's tokens of a chunk: four neighbours of each 128.
struct LaneLogits {
  static constexpr int kParts = kLaneTokens / 4;
  uint4 parts[kParts];

  // Behind the last token there is the last part, so that all loads are issued at once.
  __device__ LaneLogits(const float* row, int64_t vocab, int64_t chunk) {
    const auto last = static_cast<int>((vocab - 1) / 4);
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      parts[p] = reinterpret_cast<const uint4*>(row)[min(Part(chunk, p), last)];
    }
  }

  // -inf behind the last token.
  __device__ void EndAt(int64_t vocab, int64_t chunk) {
    if ((chunk + 1) * kChunk <= vocab) return;
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      const auto end = static_cast<int>(vocab) - Part(chunk, p) * 4;
      const uint32_t none = __float_as_uint(-INFINITY);
      if (end <= 0) parts[p].x = none;
      if (end <= 1) parts[p].y = none;
      if (end <= 2) parts[p].z = none;
      if (end <= 3) parts[p].w = none;
    }
  }

  // Of all parts of the row.
  __device__ static int Part(int64_t chunk, int p) {
    return static_cast<int>(chunk) * (kChunk / 4) + p * kWarp +
           static_cast<int>(threadIdx.x) % kWarp;
  }
  __device__ static int Token(int64_t chunk, int i) { return Part(chunk, i / 4) * 4 + i % 4; }

  __device__ float operator[](int i) const {
    const uint4& part = parts[i / 4];
    return __uint_as_float(i % 4 == 0   ? part.x
                           : i % 4 == 1 ? part.y
                           : i % 4 == 2 ? part.z
                                        : part.w);
  }
};

// This warp's chunk of a piece.
__device__ inline int64_t ChunkOf(int64_t piece) {
  return piece * kSampleWarps + static_cast<int>(threadIdx.x) / kWarp;
}

// The pieces of a block. The first one is loaded at once, each further one while the one before it
// is looked at.
class Pieces {
 public:
  __device__ Pieces(const SampleKernelArgs& args, const float* row)
      : args_(args), row_(row), next_(row, args.a.vocab, ChunkOf(blockIdx.x)) {}

  // Calls f(piece, the logits of this warp's chunk of it), -inf behind the last token.
  template <typename F>
  __device__ void ForEach(const F& f) {
    for (int64_t piece = blockIdx.x; piece < args_.pieces; piece += gridDim.x) {
      LaneLogits logits = next_;
      if (piece + gridDim.x < args_.pieces) {
        next_ = LaneLogits(row_, args_.a.vocab, ChunkOf(piece + gridDim.x));
      }
      logits.EndAt(args_.a.vocab, ChunkOf(piece));
      f(piece, logits);
    }
  }

 private:
  const SampleKernelArgs& args_;
  const float* row_;
  LaneLogits next_;
};

// Of all chunks of a row. All threads get the result.
struct MergeShared {
  alignas(Scan) unsigned char scans[kSampleWarps * sizeof(Scan)];
};
__device__ inline Scan MergeWarp(Scan scan) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    Scan other;
    other.max = __shfl_xor_sync(kAllLanes, scan.max, distance);
    other.min = __shfl_xor_sync(kAllLanes, scan.min, distance);
    other.first = __shfl_xor_sync(kAllLanes, scan.first, distance);
    other.is_bad = __shfl_xor_sync(kAllLanes, scan.is_bad, distance);
    scan.Merge(other);
  }
  return scan;
}
__device__ inline Scan MergeRow(const SampleKernelArgs& args, int64_t row, MergeShared& shared) {
  const auto* from = reinterpret_cast<const uint4*>(args.scans + row * args.chunks);
  const auto thread = static_cast<int>(threadIdx.x);
  const int last = static_cast<int>(args.chunks) - 1;
  Scan scan;
#pragma unroll 1
  for (int i = thread + 2 * kSampleThreads; i <= last; i += kSampleThreads) {
    scan.Merge(Scan::Of(from[i]));
  }
  // What stands in front of the loop would be loaded behind it; so most rows have no turn of it.
  // The last chunk counts as often as there is no other.
  const uint4 one = from[min(thread, last)];
  const uint4 other = from[min(thread + kSampleThreads, last)];
  scan.Merge(Scan::Of(one));
  scan.Merge(Scan::Of(other));
  scan = MergeWarp(scan);
  Scan* scans = reinterpret_cast<Scan*>(shared.scans);
  if (threadIdx.x % kWarp == 0) scans[threadIdx.x / kWarp] = scan;
  __syncthreads();
  scan = scans[0];
  for (int i = 1; i < kSampleWarps; ++i) scan.Merge(scans[i]);
  return scan;
}

__device__ inline bool HasTopK(const SamplingRow& row, int64_t vocab) {
  return row.top_k > 0 && row.top_k < vocab;
}
__device__ inline bool IsCut(const SamplingRow& row, int64_t vocab) {
  return !row.greedy && (HasTopK(row, vocab) || row.top_p < 1.0f);
}

// The weights of a row's tokens, multiples of 2^-40 up to 1 for the largest, and bins of them: a
// token of a higher bin has no larger logit.
class TokenWeights {
 public:
  static constexpr float kOne = 1099511627776.0f;  // 2^40
  static constexpr float kBits = 40.0f;

  __device__ TokenWeights(const SamplingRow& row, const Scan& scan)
      : inverse_temperature_(row.inverse_temperature),
        max_(scan.max),
        least_kept_(ceilf(row.min_p * kOne)) {
    const float range = fminf(-Exponent(scan.min), kBits);
    bins_of_exponent_ = range > 1e-30f ? -static_cast<float>(kCutBins) / range : 0.0f;
  }

  // Of two, at most 0.
  __device__ float Exponent(float logit) const {
    constexpr float kLog2E = 1.4426950408889634f;
    return (logit - max_) * inverse_temperature_ * kLog2E;
  }
  __device__ static uint64_t OfExponent(float exponent) {
    return static_cast<uint64_t>(Exp2(exponent) * kOne);
  }
  __device__ uint64_t operator()(float logit) const { return OfExponent(Exponent(logit)); }

  __device__ uint32_t Bin(float exponent) const {
    constexpr float kTwo23 = 8388608.0f;  // rounds to whole numbers
    const float bin = fminf(exponent * bins_of_exponent_, static_cast<float>(kCutBins - 1));
    return __float_as_uint(bin + kTwo23) - 0x4b000000u;
  }

  // 0 where min-p removes the token.
  __device__ uint64_t Kept(float exponent) const {
    const float weight = Exp2(exponent) * kOne;
    return static_cast<uint64_t>(weight < least_kept_ ? 0.0f : weight);
  }

 private:
  const float inverse_temperature_;
  const float max_;
  const float least_kept_;  // a whole number
  float bins_of_exponent_;
};

// Sums of 64 bits in shared memory, where only 32 can be added at once.
struct Sum64 {
  uint32_t low;
  uint32_t high;

  __device__ void Clear() { low = high = 0; }
  __device__ void Add(uint64_t value) {
    const uint32_t more = HighOf(value, AddLow(value));
    if (more != 0) AddHigh(more);
  }
  // The same in steps: what AddLow returns says what is to be added to the upper half.
  __device__ uint32_t AddLow(uint64_t value) {
    return atomicAdd(&low, static_cast<uint32_t>(value));
  }
  __device__ static uint32_t HighOf(uint64_t value, uint32_t low_before) {
    const uint32_t carry = low_before + static_cast<uint32_t>(value) < low_before ? 1 : 0;
    return static_cast<uint32_t>(value >> 32) + carry;
  }
  __device__ void AddHigh(uint32_t more) { atomicAdd(&high, more); }
  __device__ uint64_t Get() const { return static_cast<uint64_t>(high) << 32 | low; }
};

// Whether all other blocks of the row have come here, whose writes this block then sees.
__device__ inline bool IsLastOfRow(int32_t* counter, int32_t* shared) {
  __syncthreads();
  if (threadIdx.x == 0) {
    *shared = CountForOthers(counter) == static_cast<int32_t>(gridDim.x) - 1 ? 1 : 0;
  }
  __syncthreads();
  return *shared != 0;
}

}  // namespace mlc_native::kernels::cuda
