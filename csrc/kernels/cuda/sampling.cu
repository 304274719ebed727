// SampleTokens without a sort: from rows of logits to tokens in two launches.
//
// 1. ScanKernel (sampling_scan.cuh), a block per chunk of a row: applies bias, penalties and mask
// in
//    place, and summarizes each chunk.
// 2. DrawKernel, a block per row. Greedy rows only read the summaries. Other rows find the
// thresholds
//    of top-k and top-p (row_select.cuh) and then visit the kept tokens in the order of their ids,
//    until the running sum passes the draw.
//
// Weights are multiples of 2^-40 (the largest is 1), so that sums over threads in an unknown order
// are sums of integers, and a row's token is the same in every batch and run. Ties at a threshold
// go to the lowest ids, as on the CPU.
//
// Bytes: the first launch reads and writes the row once. The second one reads it 0 (greedy), 1 (no
// truncation), 2 (top-k) or 3 times (top-p) from L2, and more often if a distribution is so flat
// that thousands of tokens are kept.
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/row_select.cuh"
#include "kernels/cuda/sampling_scan.cuh"
#include "support/random.h"

namespace mlc_native::kernels::cuda {
inline namespace sampling_cu {

constexpr float kWeightOne = 1099511627776.0f;  // 2^40
constexpr float kLog2E = 1.4426950408889634f;

struct DrawShared {
  SelectShared select;
  Scan scans[kSelectWarps];
  uint64_t sums[kSelectWarps];
  uint64_t ties[kSelectWarps];
  int num_top;
  int32_t top_ids[kMaxTopLogprobs];
  float top_values[kMaxTopLogprobs];
  int32_t token;
};

class Drawer {
 public:
  __device__ Drawer(const SampleKernelArgs& args, DrawShared& shared)
      : args_(args),
        row_(args.a.rows[blockIdx.x]),
        logits_(args.a.logits + blockIdx.x * args.a.ld),
        scans_(args.scans + blockIdx.x * args.chunks),
        shared_(shared) {}

  __device__ void Run() {
    Scan scan;
    for (int64_t i = threadIdx.x; i < args_.chunks; i += kSelectThreads) scan.Merge(scans_[i]);
    scan_ = MergeBlock(scan, shared_.scans);
    const int32_t token = Token();
    if (threadIdx.x == 0) args_.a.tokens[blockIdx.x] = token;
    if (row_.logprobs && token >= 0) Logprobs(token);
  }

 private:
  // Where a walk through the kept tokens has come to.
  struct Place {
    int64_t begin;
    int64_t end;
    uint64_t sum;   // of the weights before begin
    uint64_t ties;  // values equal to the cut before begin
  };

  __device__ int32_t Token() {
    if (scan_.is_bad != 0) return kBadLogits;
    if (scan_.max == -INFINITY) return kNothingAllowed;
    if (row_.greedy) return scan_.first;
    return Draw(FindCut());
  }

  __device__ uint64_t Weight(float logit) const {
    return static_cast<uint64_t>(Exp2((logit - scan_.max) * row_.inverse_temperature * kLog2E) *
                                 kWeightOne);
  }

  __device__ Cut FindCut() {
    const auto weight = [this](float logit) { return Weight(logit); };
    RowSelect select(logits_, args_.a.vocab, shared_.select);
    const bool has_top_k = row_.top_k > 0 && row_.top_k < args_.a.vocab;
    Cut cut;
    if (has_top_k) {
      select.GatherTop(row_.top_k, args_.chunks, [this](int64_t i) { return scans_[i].max; });
      cut =
          select.Select(cut, static_cast<uint64_t>(row_.top_k), [](float) { return uint64_t{1}; });
    }
    if (!(row_.top_p < 1.0f)) return cut;
    const auto total = static_cast<double>(select.Sum(cut, weight));
    const auto mass = static_cast<uint64_t>(static_cast<double>(row_.top_p) * total);
    const uint64_t goal = mass > 0 ? mass : 1;
    // Without the tokens below a share of the mass the few others mostly reach it.
    for (uint64_t share = 256; !has_top_k && share <= 4096; share *= 16) {
      const uint64_t least = goal / share;
      if (select.Gather([&](float logit) { return Weight(logit) >= least; }) &&
          select.Sum(cut, weight) >= goal) {
        break;
      }
      select.Forget();
    }
    return select.Select(cut, goal, weight);
  }

  // The first token at which the running sum of the kept weights exceeds u times their sum.
  __device__ int32_t Draw(const Cut& cut) {
    Place place{0, args_.a.vocab, 0, 0};
    const uint64_t total = SumParts(cut, place);
    const double u = RandomUniform(row_.seed, row_.sequence,
                                   static_cast<uint64_t>(args_.a.positions[blockIdx.x]));
    auto target = static_cast<uint64_t>(u * static_cast<double>(total));
    if (target >= total) target = total - 1;
    place = FindPart(cut, place, target);
    SumParts(cut, place);
    place = FindPart(cut, place, target);
    if (threadIdx.x < kWarp) Walk(cut, place, target);
    __syncthreads();
    return shared_.token;
  }

  // The w-th of the warps' equal parts of a place.
  __device__ static Place PartOf(const Place& place, int w) {
    const int64_t size = (place.end - place.begin + kSelectWarps - 1) / kSelectWarps;
    const int64_t begin = min(place.begin + w * size, place.end);
    return {begin, min(begin + size, place.end), 0, 0};
  }

  __device__ uint64_t KeptWeight(float logit) const {
    const uint64_t weight = Weight(logit);
    return static_cast<float>(weight) < row_.min_p * kWeightOne ? 0 : weight;
  }

  // Sums and ties of each warp's part; the kept sum of all.
  __device__ uint64_t SumParts(const Cut& cut, const Place& place) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const Place part = PartOf(place, warp);
    uint64_t sum = 0;
    uint64_t ties = 0;
    for (int64_t i = part.begin + threadIdx.x % kWarp; i < part.end; i += kWarp) {
      const uint32_t bits = OrderedBits(logits_[i]);
      if (bits > cut.bits) sum += KeptWeight(logits_[i]);
      if (bits == cut.bits) ++ties;
    }
    sum = ReduceWarp(sum, Plus());
    ties = ReduceWarp(ties, Plus());
    __syncthreads();
    if (threadIdx.x % kWarp == 0) {
      shared_.sums[warp] = sum;
      shared_.ties[warp] = ties;
    }
    __syncthreads();
    uint64_t total = 0;
    uint64_t seen = place.ties;
    for (int w = 0; w < kSelectWarps; ++w) total += PartSum(cut, w, &seen);
    return total;
  }

  // Of the part of warp w, with `*seen` ties before it.
  __device__ uint64_t PartSum(const Cut& cut, int w, uint64_t* seen) const {
    const uint64_t before = *seen;
    *seen += shared_.ties[w];
    if (before >= cut.num_ties || shared_.ties[w] == 0) return shared_.sums[w];
    const uint64_t kept = min(*seen, cut.num_ties) - before;
    return shared_.sums[w] + kept * KeptWeight(FromOrderedBits(cut.bits));
  }

  __device__ Place FindPart(const Cut& cut, const Place& place, uint64_t target) const {
    uint64_t sum = place.sum;
    uint64_t seen = place.ties;
    for (int w = 0; w < kSelectWarps; ++w) {
      const uint64_t ties = seen;
      const uint64_t part = PartSum(cut, w, &seen);
      if (sum + part > target) {
        const Place found = PartOf(place, w);
        return {found.begin, found.end, sum, ties};
      }
      sum += part;
    }
    return place;  // never: target is below the total
  }

  // One warp: 32 tokens at a time.
  __device__ void Walk(const Cut& cut, const Place& place, uint64_t target) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    uint64_t sum = place.sum;
    uint64_t ties = place.ties;
    for (int64_t first = place.begin; first < place.end; first += kWarp) {
      const int64_t i = first + lane;
      const float logit = i < place.end ? logits_[i] : -INFINITY;
      const uint32_t bits = i < place.end ? OrderedBits(logit) : 0;
      const bool is_tie = bits == cut.bits && i < place.end;
      const unsigned all_ties = __ballot_sync(kAllLanes, is_tie);
      const uint64_t rank = ties + __popc(all_ties & ((1u << lane) - 1u));
      const bool is_kept = bits > cut.bits || (is_tie && rank < cut.num_ties);
      const uint64_t weight = is_kept ? KeptWeight(logit) : 0;
      const uint64_t before = sum + SumOfLanesBefore(weight);
      if (before <= target && before + weight > target) {
        shared_.token = static_cast<int32_t>(i);
      }
      sum = __shfl_sync(kAllLanes, before + weight, kWarp - 1);
      ties += __popc(all_ties);
    }
  }

  // ---- Logprobs ----

  __device__ void Logprobs(int32_t token) {
    const float* raw = args_.raw + blockIdx.x * args_.a.vocab;
    const float log_sum = scan_.raw_max + logf(scan_.raw_sum);
    if (threadIdx.x == 0) args_.a.logprobs[blockIdx.x] = raw[token] - log_sum;
    const int64_t n = min(static_cast<int64_t>(kMaxTopLogprobs), args_.a.vocab);
    RowSelect select(raw, args_.a.vocab, shared_.select);
    select.GatherTop(n, args_.chunks, [this](int64_t i) { return scans_[i].raw_max; });
    const Cut cut =
        select.Select(Cut(), static_cast<uint64_t>(n), [](float) { return uint64_t{1}; });
    CollectTop(raw, cut);
    WriteTop(log_sum);
  }

  // The tokens that `cut` keeps, in any order.
  __device__ void CollectTop(const float* raw, const Cut& cut) {
    if (threadIdx.x == 0) shared_.num_top = 0;
    __syncthreads();
    int32_t tie = kNoToken;  // the lowest tie of this thread that is not collected
    for (int64_t i = threadIdx.x; i < args_.a.vocab; i += kSelectThreads) {
      const uint32_t bits = OrderedBits(raw[i]);
      if (bits > cut.bits) AddTop(static_cast<int32_t>(i), raw[i]);
      if (bits == cut.bits && tie == kNoToken) tie = static_cast<int32_t>(i);
    }
    for (uint64_t j = 0; j < cut.num_ties; ++j) {
      __syncthreads();
      const Scan first = MergeBlock(TieScan(tie), shared_.scans);
      if (tie == first.first) {
        AddTop(tie, raw[tie]);
        tie = NextTie(raw, cut, tie);
      }
    }
    __syncthreads();
  }

  __device__ static Scan TieScan(int32_t tie) {
    Scan scan;
    scan.Add(0.0f, tie);
    return scan;
  }
  __device__ int32_t NextTie(const float* raw, const Cut& cut, int32_t tie) const {
    for (int64_t i = tie + kSelectThreads; i < args_.a.vocab; i += kSelectThreads) {
      if (OrderedBits(raw[i]) == cut.bits) return static_cast<int32_t>(i);
    }
    return kNoToken;
  }
  __device__ void AddTop(int32_t token, float value) {
    const int at = atomicAdd(&shared_.num_top, 1);
    shared_.top_ids[at] = token;
    shared_.top_values[at] = value;
  }

  // Best first; tokens at -inf are none.
  __device__ void WriteTop(float log_sum) {
    const auto i = static_cast<int>(threadIdx.x);
    if (i >= kMaxTopLogprobs) return;
    int32_t* ids = args_.a.top_ids + blockIdx.x * kMaxTopLogprobs;
    float* values = args_.a.top_logprobs + blockIdx.x * kMaxTopLogprobs;
    if (i >= shared_.num_top) {
      ids[i] = -1;
      values[i] = -INFINITY;
      return;
    }
    const float mine = shared_.top_values[i];
    int rank = 0;
    for (int j = 0; j < shared_.num_top; ++j) {
      const float other = shared_.top_values[j];
      if (other > mine || (other == mine && shared_.top_ids[j] < shared_.top_ids[i])) ++rank;
    }
    ids[rank] = mine > -INFINITY ? shared_.top_ids[i] : -1;
    values[rank] = mine > -INFINITY ? mine - log_sum : -INFINITY;
  }

  const SampleKernelArgs& args_;
  const SamplingRow& row_;
  const float* const logits_;
  const Scan* const scans_;
  DrawShared& shared_;
  Scan scan_;
};

__global__ void __launch_bounds__(kSelectThreads, 1)
    DrawKernel(const __grid_constant__ SampleKernelArgs args) {
  WaitForPrevious();
  Drawer(args, *static_cast<DrawShared*>(DynamicShared())).Run();
}

size_t AlignUp(size_t bytes) { return (bytes + 15) / 16 * 16; }
int64_t NumChunks(int64_t vocab) { return (vocab + kChunk - 1) / kChunk; }
size_t ScanBytes(int64_t m, int64_t vocab) {
  return AlignUp(static_cast<size_t>(m * NumChunks(vocab)) * sizeof(Scan));
}

}  // namespace sampling_cu

size_t SampleWorkspaceBytes(int64_t m, int64_t vocab) {
  return ScanBytes(m, vocab) + static_cast<size_t>(m * vocab) * sizeof(float);
}

void SampleTokens(const SampleArgs& args, Stream stream) {
  MLC_CHECK(args.vocab > 0 && args.vocab <= args.ld) << args.vocab << " of " << args.ld;
  if (args.m == 0) return;
  auto* workspace = static_cast<char*>(args.workspace);
  const SampleKernelArgs kernel_args{
      .a = args,
      .chunks = NumChunks(args.vocab),
      .scans = reinterpret_cast<Scan*>(workspace),
      .raw = reinterpret_cast<float*>(workspace + ScanBytes(args.m, args.vocab))};
  const auto rows = static_cast<unsigned>(args.m);
  Launch(ScanKernel,
         {.grid = dim3(static_cast<unsigned>(kernel_args.chunks), rows), .threads = kScanThreads},
         stream, kernel_args);
  Launch(DrawKernel,
         {.grid = dim3(rows), .threads = kSelectThreads, .shared_bytes = sizeof(DrawShared)},
         stream, kernel_args);
}

}  // namespace mlc_native::kernels::cuda
