// The third launch of SampleTokens: it draws.
//
// Greedy rows only read the summaries of their chunks. Of other rows, the blocks add up what each
// chunk keeps for sure and list the tokens in the range of the cut. The last block of a row finds
// the cut among them (row_select.cuh), then the chunk in which the running sum, in the order of
// ids, passes the draw, and then the token.
#pragma once

#include "kernels/cuda/row_select.cuh"
#include "kernels/cuda/sampling_cut.cuh"
#include "support/random.h"

namespace mlc_native::kernels::cuda {

// Tokens in shared memory: those that a block has found, and later all of a row.
struct Listed {
  float logits[kMaxListed];
  int32_t ids[kMaxListed];
  int32_t size;

  // False where there is no room.
  __device__ void Add(float logit, int token) {
    const int at = atomicAdd(&size, 1);
    if (at >= kMaxListed) return;
    logits[at] = logit;
    ids[at] = token;
  }
};

struct DrawShared {
  Listed listed;
  SelectShared select;
  MergeShared merge;
  RawScan raw_scans[kSampleWarps];
  int32_t begin;  // of the block's tokens among the row's
  int32_t is_last;
  int32_t token;
  int32_t chunk;    // of the token
  uint64_t before;  // what is kept in front of the chunk
  float bound;
  int num_top;
  int32_t top_ids[kMaxTopLogprobs];
  float top_values[kMaxTopLogprobs];
};

// Tokens that a block looks at: of a list, or all of a row.
struct Items {
  const float* logits;
  const int32_t* ids;  // null: all
  int64_t size;

  __device__ float Logit(int64_t i) const { return logits[i]; }
  __device__ int32_t Id(int64_t i) const {
    return ids == nullptr ? static_cast<int32_t>(i) : ids[i];
  }
};

// Keeps the logits above that with `bits` and, of those equal to it, ids up to last_tie.
struct Cut {
  uint32_t bits = 0;  // below every number: keeps all
  int32_t last_tie = kNoToken;

  __device__ bool Keeps(float logit, int32_t id) const {
    const uint32_t of_logit = OrderedBits(logit);
    return of_logit > bits || (of_logit == bits && id <= last_tie);
  }
};

class Drawer {
 public:
  __device__ Drawer(const SampleKernelArgs& args, DrawShared& shared, uint64_t* sums)
      : args_(args),
        row_(blockIdx.y),
        settings_(args.a.rows[row_]),
        logits_(args.a.logits + row_ * args.a.ld),
        shared_(shared),
        sums_(sums) {}

  __device__ void Run() {
    if (blockIdx.x > 0 && settings_.greedy) return;
    Pieces pieces(args_, logits_);
    const CutPlan plan = args_.states[row_].plan;
    const Scan scan = MergeRow(args_, row_, shared_.merge);
    int32_t token = kBadLogits;
    if (scan.is_bad != 0 || scan.max == -INFINITY || settings_.greedy) {
      if (blockIdx.x > 0) return;
      if (scan.is_bad == 0) token = scan.max == -INFINITY ? kNothingAllowed : scan.first;
    } else {
      const TokenWeights weights(settings_, scan);
      List(weights, plan, pieces);
      if (!IsLastOfRow(&args_.states[row_].num_drawn, &shared_.is_last)) return;
      token = Draw(weights, plan);
    }
    if (threadIdx.x == 0) args_.a.tokens[row_] = token;
    if (settings_.logprobs && token >= 0) Logprobs(token);
  }

 private:
  // ---- By all blocks of a row ----

  // Adds up the chunks of the block, and lists its tokens in the plan's bins.
  __device__ void List(const TokenWeights& weights, const CutPlan& plan, Pieces& pieces) {
    if (threadIdx.x == 0) shared_.listed.size = 0;
    __syncthreads();
    if (plan.list_from == kCutBins) {
      pieces.ForEach([&](int64_t piece, const LaneLogits& logits) {
        uint64_t sum = 0;
#pragma unroll
        for (int i = 0; i < kLaneTokens; ++i) sum += weights.Kept(weights.Exponent(logits[i]));
        StoreSum(ChunkOf(piece), sum);
      });
      return;
    }
    pieces.ForEach([&](int64_t piece, const LaneLogits& logits) {
      const int64_t chunk = ChunkOf(piece);
      uint64_t sum = 0;
#pragma unroll
      for (int p = 0; p < LaneLogits::kParts; ++p) {
        float exponents[4];
        uint32_t bins[4];
        uint32_t least = kCutBins;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          exponents[i] = weights.Exponent(logits[4 * p + i]);
          bins[i] = weights.Bin(exponents[i]);
          least = min(least, bins[i]);
        }
        if (least > plan.list_to) continue;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (bins[i] < plan.list_from) {
            sum += weights.Kept(exponents[i]);
          } else if (bins[i] <= plan.list_to && TokenWeights::OfExponent(exponents[i]) != 0) {
            shared_.listed.Add(logits[4 * p + i], LaneLogits::Token(chunk, 4 * p + i));
          }
        }
      }
      StoreSum(chunk, sum);
    });
    StoreListed();
  }

  // Of a lane; by all lanes of a warp.
  __device__ void StoreSum(int64_t chunk, uint64_t sum) const {
    sum = ReduceWarp(sum, Plus());
    if (threadIdx.x % kWarp == 0 && chunk < args_.chunks) {
      args_.sums[row_ * args_.chunks + chunk] = sum;
    }
  }

  __device__ void StoreListed() {
    __syncthreads();
    const int size = shared_.listed.size;
    if (size == 0) return;
    if (threadIdx.x == 0) shared_.begin = atomicAdd(&args_.states[row_].num_listed, size);
    __syncthreads();
    const int begin = shared_.begin;
    for (int i = static_cast<int>(threadIdx.x); i < size && begin + i < kMaxListed;
         i += kSampleThreads) {
      args_.listed_logits[row_ * kMaxListed + begin + i] = shared_.listed.logits[i];
      args_.listed_ids[row_ * kMaxListed + begin + i] = shared_.listed.ids[i];
    }
  }

  // ---- By the last block of a row ----

  __device__ int32_t Draw(const TokenWeights& weights, const CutPlan& plan) {
    const auto thread = static_cast<int>(threadIdx.x);
    const int size = LoadOthers(&args_.states[row_].num_listed);
    const int32_t position = args_.a.positions[row_];
    const int last = static_cast<int>(args_.chunks) - 1;
    const uint64_t* sums = args_.sums + row_ * args_.chunks;
#pragma unroll 1
    for (int i = thread; i <= last; i += 2 * kSampleThreads) {  // two at a time
      const int next = min(i + kSampleThreads, last);
      const uint64_t one = LoadOthers(&sums[i]);
      const uint64_t other = LoadOthers(&sums[next]);
      sums_[i] = one;
      sums_[next] = other;
    }
    Cut cut;
    if (plan.list_from < kCutBins) {
      const bool has_all = size <= kMaxListed;
#pragma unroll 1
      for (int i = thread; has_all && i < size; i += kSampleThreads) {
        shared_.listed.logits[i] = LoadOthers(&args_.listed_logits[row_ * kMaxListed + i]);
        shared_.listed.ids[i] = LoadOthers(&args_.listed_ids[row_ * kMaxListed + i]);
      }
      __syncthreads();
      const Items items{has_all ? shared_.listed.logits : logits_,
                        has_all ? shared_.listed.ids : nullptr, has_all ? size : args_.a.vocab};
      cut = FindCut(items, weights, plan, has_all ? plan.above : 0);
      if (has_all) {
        AddListed(weights, cut, size);
      } else {
        AddRow(weights, cut);
      }
    }
    __syncthreads();
    return FindToken(weights, cut, position);
  }

  __device__ Cut FindCut(const Items& items, const TokenWeights& weights, const CutPlan& plan,
                         uint64_t above) {
    Cut cut;
    uint64_t goal = plan.goal;
    bool counts = HasTopK(settings_, args_.a.vocab);
#pragma unroll 1
    for (;;) {
      cut = CutAt(items, cut, above, goal, [&](float logit) {
        const uint64_t weight = weights(logit);
        return counts && weight != 0 ? 1 : weight;
      });
      if (!counts || !(settings_.top_p < 1.0f)) return cut;
      uint64_t total = 0;
#pragma unroll 1
      for (int64_t i = threadIdx.x; i < items.size; i += kSampleThreads) {
        if (cut.Keeps(items.Logit(i), items.Id(i))) total += weights(items.Logit(i));
      }
      goal = GoalOf(settings_, SumBlock(total, shared_.select));
      above = 0;
      counts = false;
    }
  }

  // Where those of the items that `cut` keeps reach the goal, from the largest on.
  template <typename Measure>
  __device__ Cut CutAt(const Items& items, const Cut& cut, uint64_t above, uint64_t goal,
                       const Measure& measure) {
    // First the logit, then the last id of those with this logit that are kept.
    uint32_t bits = 0;
    bool is_logit = true;
#pragma unroll 1
    for (;;) {
      const Selected at = SelectKey(
          items.size, above, goal, shared_.select, [&](int64_t i, uint32_t* key) -> uint64_t {
            const float logit = items.Logit(i);
            const int32_t id = items.Id(i);
            *key = is_logit ? OrderedBits(logit) : ~static_cast<uint32_t>(id);
            if (!cut.Keeps(logit, id)) return 0;
            return is_logit ? measure(logit) : (OrderedBits(logit) == bits ? 1 : 0);
          });
      if (!is_logit) return {bits, static_cast<int32_t>(~at.key)};
      bits = at.key;
      const uint64_t tie = measure(FromOrderedBits(bits));
      goal = (goal - at.above + tie - 1) / tie;
      above = 0;
      is_logit = false;
      uint64_t ties = 0;
#pragma unroll 1
      for (int64_t i = threadIdx.x; i < items.size; i += kSampleThreads) {
        const float logit = items.Logit(i);
        if (OrderedBits(logit) == bits && cut.Keeps(logit, items.Id(i))) ++ties;
      }
      if (goal >= SumBlock(ties, shared_.select)) {
        return {bits, bits == cut.bits ? cut.last_tie : kNoToken};
      }
    }
  }

  // What the listed tokens add to the sums of their chunks.
  __device__ void AddListed(const TokenWeights& weights, const Cut& cut, int size) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < size; i += kSampleThreads) {
      const float logit = shared_.listed.logits[i];
      const int32_t id = shared_.listed.ids[i];
      if (!cut.Keeps(logit, id)) continue;
      atomicAdd(reinterpret_cast<unsigned long long*>(&sums_[id / kChunk]),
                static_cast<unsigned long long>(weights.Kept(weights.Exponent(logit))));
    }
  }

  // The sums of all chunks anew.
  __device__ void AddRow(const TokenWeights& weights, const Cut& cut) {
#pragma unroll 1
    for (int64_t piece = 0; piece < args_.pieces; ++piece) {
      const int64_t chunk = ChunkOf(piece);
      LaneLogits logits(logits_, args_.a.vocab, chunk);
      logits.EndAt(args_.a.vocab, chunk);
      uint64_t sum = 0;
#pragma unroll
      for (int i = 0; i < kLaneTokens; ++i) {
        if (cut.Keeps(logits[i], LaneLogits::Token(chunk, i))) {
          sum += weights.Kept(weights.Exponent(logits[i]));
        }
      }
      sum = ReduceWarp(sum, Plus());
      if (threadIdx.x % kWarp == 0 && chunk < args_.chunks) sums_[chunk] = sum;
    }
  }

  // The first token at which the running sum of what is kept exceeds u times all of it: first its
  // chunk, then itself.
  __device__ int32_t FindToken(const TokenWeights& weights, const Cut& cut, int32_t position) {
    const auto thread = static_cast<int>(threadIdx.x);
    const auto chunks = static_cast<int>(args_.chunks);
    const int per_thread = (chunks + kSampleThreads - 1) / kSampleThreads;
    const int begin = min(thread * per_thread, chunks);
    const int end = min(begin + per_thread, chunks);
    uint64_t sum = 0;
#pragma unroll 1
    for (int i = begin; i < end; ++i) sum += sums_[i];
    uint64_t total = 0;
    uint64_t before = SumOfThreadsBefore(sum, &total, shared_.select);
    const double u =
        RandomUniform(settings_.seed, settings_.sequence, static_cast<uint64_t>(position));
    auto target = static_cast<uint64_t>(u * static_cast<double>(total));
    if (target >= total) target = total - 1;
    if (before <= target && target < before + sum) {
      int chunk = begin;
#pragma unroll 1
      while (before + sums_[chunk] <= target) before += sums_[chunk++];
      shared_.chunk = chunk;
      shared_.before = before;
    }
    __syncthreads();
    constexpr int kTokens = kChunk / kSampleThreads;  // of a thread
    const int first = shared_.chunk * kChunk + thread * kTokens;
    uint64_t kept[kTokens];
    sum = 0;
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const float logit = logits_[min(static_cast<int64_t>(first + i), args_.a.vocab - 1)];
      const bool is_kept = first + i < args_.a.vocab && cut.Keeps(logit, first + i);
      kept[i] = is_kept ? weights.Kept(weights.Exponent(logit)) : 0;
      sum += kept[i];
    }
    uint64_t of_chunk = 0;
    before = shared_.before + SumOfThreadsBefore(sum, &of_chunk, shared_.select);
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      if (before <= target && target < before + kept[i]) shared_.token = first + i;
      before += kept[i];
    }
    __syncthreads();
    return shared_.token;
  }

  // ---- Logprobs ----

  __device__ void Logprobs(int32_t token) {
    const float* raw = args_.raw + row_ * args_.ld_raw;
    const RawScan all = MergeRaw();
    const float log_sum = all.max + logf(all.sum);
    if (threadIdx.x == 0) args_.a.logprobs[row_] = raw[token] - log_sum;
    const float bound = TopBound();
    if (threadIdx.x == 0) {
      shared_.listed.size = 0;
      shared_.num_top = 0;
    }
    __syncthreads();
    const auto* maxima = reinterpret_cast<const float*>(sums_);
#pragma unroll 1
    for (int64_t piece = 0; piece < args_.pieces; ++piece) {
      const int64_t chunk = ChunkOf(piece);
      if (chunk >= args_.chunks || maxima[chunk] < bound) continue;
      LaneLogits logits(raw, args_.a.vocab, chunk);
      logits.EndAt(args_.a.vocab, chunk);
#pragma unroll
      for (int i = 0; i < kLaneTokens; ++i) {
        if (logits[i] >= bound && logits[i] > -INFINITY) {
          shared_.listed.Add(logits[i], LaneLogits::Token(chunk, i));
        }
      }
    }
    __syncthreads();
    const int size = shared_.listed.size;
    const bool has_all = size <= kMaxListed;
    if (size > 0) {
      CollectTop({has_all ? shared_.listed.logits : raw, has_all ? shared_.listed.ids : nullptr,
                  has_all ? size : args_.a.vocab});
    }
    __syncthreads();
    WriteTop(log_sum);
  }

  // Of all chunks, in an order of their own; all threads get the result.
  __device__ RawScan MergeRaw() {
    RawScan scan;
    for (int64_t i = threadIdx.x; i < args_.chunks; i += kSampleThreads) {
      scan.Merge(args_.raw_scans[row_ * args_.chunks + i]);
    }
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      RawScan other;
      other.max = __shfl_xor_sync(kAllLanes, scan.max, distance);
      other.sum = __shfl_xor_sync(kAllLanes, scan.sum, distance);
      scan.Merge(other);
    }
    if (threadIdx.x % kWarp == 0) shared_.raw_scans[threadIdx.x / kWarp] = scan;
    __syncthreads();
    scan = shared_.raw_scans[0];
    for (int i = 1; i < kSampleWarps; ++i) scan.Merge(shared_.raw_scans[i]);
    return scan;
  }

  // A value that at least kMaxTopLogprobs tokens reach: as many chunks have a maximum of it. Leaves
  // the maxima where the sums were.
  __device__ float TopBound() {
    const RawScan* scans = args_.raw_scans + row_ * args_.chunks;
    auto* maxima = reinterpret_cast<float*>(sums_);
    __syncthreads();  // the sums have been used
#pragma unroll 1
    for (int64_t i = threadIdx.x; i < args_.chunks; i += kSampleThreads) maxima[i] = scans[i].max;
    if (args_.chunks < kMaxTopLogprobs) return -INFINITY;
    __syncthreads();
#pragma unroll 1
    for (int64_t i = threadIdx.x; i < args_.chunks; i += kSampleThreads) {
      int64_t rank = 0;
#pragma unroll 4
      for (int64_t j = 0; j < args_.chunks; ++j) {
        if (maxima[j] > maxima[i] || (maxima[j] == maxima[i] && j < i)) ++rank;
      }
      if (rank == kMaxTopLogprobs - 1) shared_.bound = maxima[i];
    }
    __syncthreads();
    return shared_.bound;
  }

  __device__ void CollectTop(const Items& items) {
    const uint64_t goal =
        min(static_cast<uint64_t>(kMaxTopLogprobs), static_cast<uint64_t>(items.size));
    const Cut cut = CutAt(items, Cut(), 0, goal, [](float) { return uint64_t{1}; });
    for (int64_t i = threadIdx.x; i < items.size; i += kSampleThreads) {
      if (!cut.Keeps(items.Logit(i), items.Id(i))) continue;
      const int at = atomicAdd(&shared_.num_top, 1);
      shared_.top_ids[at] = items.Id(i);
      shared_.top_values[at] = items.Logit(i);
    }
  }

  // Best first.
  __device__ void WriteTop(float log_sum) {
    const auto i = static_cast<int>(threadIdx.x);
    if (i >= kMaxTopLogprobs) return;
    int32_t* ids = args_.a.top_ids + row_ * kMaxTopLogprobs;
    float* values = args_.a.top_logprobs + row_ * kMaxTopLogprobs;
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
    ids[rank] = shared_.top_ids[i];
    values[rank] = mine - log_sum;
  }

  const SampleKernelArgs& args_;
  const int64_t row_;
  const SamplingRow& settings_;
  const float* const logits_;
  DrawShared& shared_;
  uint64_t* const sums_;  // of the row's chunks, in shared memory
};

}  // namespace mlc_native::kernels::cuda
