// LanesWorker: decode attention without tensor cores, for float32.
//
// Keys and values are loaded once for all query heads of an item (decode_items.cuh). There is one
// kernel for any number of them, and few for the sizes of heads: float32 is for comparisons, and
// each kernel takes as long to compile as one on tensor cores. The steps of a block, for an item:
//   1. scores of all keys, a group of lanes per key, into shared memory
//   2. softmax of each head over the split, a warp per head
//   3. sums of the values, a group of lanes per key, added up over the groups in a fixed order
#pragma once

#include "kernels/cuda/decode_finish.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {

inline constexpr int kLanesThreads = 256;

// Sums each values[i] over the `lanes` neighbours of a group, in the same order for all i. What
// value a lane is left with: values[j] is that of index FirstSum + j.
template <int kValues, int lanes>
__device__ inline void SumOverLanes(float (&values)[kValues]) {
  int left = kValues;
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    const bool upper = (threadIdx.x & distance) != 0;
    if (left > 1) {
      left /= 2;
#pragma unroll
      for (int i = 0; i < kValues / 2; ++i) {
        if (i >= left) continue;
        const float mine = upper ? values[i + left] : values[i];
        const float others = upper ? values[i] : values[i + left];
        values[i] = mine + __shfl_xor_sync(kAllLanes, others, distance);
      }
    } else {
      values[0] += __shfl_xor_sync(kAllLanes, values[0], distance);
    }
  }
}

template <int kValues, int lanes>
__device__ inline int FirstSum() {
  int first = 0;
  int left = kValues;
#pragma unroll
  for (int distance = lanes / 2; distance > 0 && left > 1; distance /= 2) {
    left /= 2;
    if ((threadIdx.x & distance) != 0) first += left;
  }
  return first;
}

// kLanes: that hold a key, 8 elements each, the last ones maybe unused.
template <int kLanes>
class LanesWorker {
 public:
  __device__ LanesWorker(const DecodeKernelArgs& args, const Item& item, float* shared)
      : args_(args), item_(item), shared_(shared) {
    begin_ = item.split.begin;
    count_ = item.split.count;
    skipped_ = item.split.skipped;
    lane_ = static_cast<int>(threadIdx.x) % kLanes;
    group_ = static_cast<int>(threadIdx.x) / kLanes;
    has_column_ = lane_ * kVector < args.kv.head_dim;
    table_ = args.a.block_tables + item.split.table * args.a.ld_block_tables;
  }

  __device__ void Run() {
    Scores();
    RawVector8<float> first_values[kUnroll];  // arrive meanwhile
    Load(args_.kv.v, group_, first_values);
    __syncthreads();
    Softmax();
    __syncthreads();
    Values(first_values);
  }

 private:
  static constexpr int kHeads = kMaxItemHeads;  // of an item, the last ones maybe unused
  static constexpr int kThreads = kLanesThreads;
  static constexpr int kWarps = kThreads / kWarp;
  static constexpr int kUnroll = 4;  // keys that a group of lanes loads at a time
  static constexpr int kGroups = kThreads / kLanes;
  static constexpr int kDots = kUnroll * kHeads;
  static constexpr int kDotsPerLane = kDots > kLanes ? kDots / kLanes : 1;
  static constexpr int kLanesPerDot = kDots < kLanes ? kLanes / kDots : 1;  // that have its sum

  // Rows of kUnroll keys from `key` on, kGroups apart. All are loaded, page numbers first, so that
  // they are in flight together: instead of keys that the row does not see there is the
  // nearest one that it sees, and lanes without a column have the first one. The reader leaves them
  // out, and needs them to be finite.
  __device__ void Load(const void* pages, int key, RawVector8<float> (&rows)[kUnroll]) const {
    unsigned positions[kUnroll];
    int32_t page[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int seen = max(min(key + u * kGroups, count_ - 1), skipped_);
      positions[u] = static_cast<unsigned>(begin_ + seen);
      page[u] = table_[positions[u] / kKvPageSize];
    }
    const auto dim = static_cast<int>(args_.kv.head_dim);
    const float* from = static_cast<const float*>(pages) + item_.kv_head * kKvPageSize * dim +
                        (has_column_ ? lane_ * kVector : 0);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int of_page = static_cast<int>(positions[u] % kKvPageSize) * dim;
      rows[u] = LoadRaw(from + page[u] * args_.kv.kv_heads * kKvPageSize * dim + of_page);
    }
  }

  // shared_[key, head] = score, base 2; -inf for keys outside the window.
  __device__ void Scores() {
    float q[kHeads][kVector] = {};
    const float* from = static_cast<const float*>(args_.a.q) + item_.split.row * args_.a.ldq +
                        item_.first_head * args_.kv.head_dim + lane_ * kVector;
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (has_column_ && h < item_.num_heads) LoadFloats(from + h * args_.kv.head_dim, q[h]);
    }
    const int first_dot = FirstSum<kDots, kLanes>();
    for (int key = group_; key - group_ < count_; key += kUnroll * kGroups) {
      RawVector8<float> rows[kUnroll];
      Load(args_.kv.k, key, rows);
      float dots[kDots] = {};
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        float k[kVector];
        ToFloats(rows[u], k);
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
#pragma unroll
          for (int j = 0; j < kVector; ++j) dots[u * kHeads + h] += q[h][j] * k[j];
        }
      }
      SumOverLanes<kDots, kLanes>(dots);
#pragma unroll
      for (int i = 0; i < kDotsPerLane; ++i) {
        const int k = key + (first_dot + i) / kHeads * kGroups;
        if (k >= count_ || lane_ % kLanesPerDot != 0) continue;
        shared_[k * kHeads + (first_dot + i) % kHeads] = k < skipped_ ? -INFINITY : Score(dots[i]);
      }
    }
  }

  __device__ float Score(float dot) const {
    const float score = dot * args_.a.scale;
    const float cap = args_.a.soft_cap;
    return kLog2E * (cap > 0 ? cap * tanhf(score / cap) : score);
  }

  // Scores become weights; the maximum and the sum of head h stay in warp h.
  __device__ void Softmax() {
    const int head = static_cast<int>(threadIdx.x) / kWarp;
    if (head >= kHeads) return;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    float max = -INFINITY;
    for (int k = lane; k < count_; k += kWarp) max = fmaxf(max, shared_[k * kHeads + head]);
    max = ReduceWarp(max, Max());
    float sum = 0.0f;
    for (int k = lane; k < count_; k += kWarp) {
      const float weight = Exp2(shared_[k * kHeads + head] - max);
      shared_[k * kHeads + head] = weight;
      sum += weight;
    }
    softmax_ = {max, ReduceWarp(sum, Plus())};
  }

  // `rows`: the first ones.
  __device__ void Values(RawVector8<float> (&rows)[kUnroll]) {
    float sums[kHeads][kVector] = {};
    for (int key = group_; key < count_; key += kUnroll * kGroups) {
      if (key != group_) Load(args_.kv.v, key, rows);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int k = key + u * kGroups;
        if (k >= count_) continue;
        float v[kVector];
        ToFloats(rows[u], v);
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
          const float weight = shared_[k * kHeads + h];
#pragma unroll
          for (int j = 0; j < kVector; ++j) sums[h][j] += weight * v[j];
        }
      }
    }
    AddUpGroups(sums);
  }

  // Over the groups of a warp, then over the warps through shared memory [warp, head, head_dim].
  __device__ void AddUpGroups(float (&sums)[kHeads][kVector]) {
    const int dim = static_cast<int>(args_.kv.head_dim);
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
#pragma unroll
        for (int distance = kLanes; distance < kWarp; distance *= 2) {
          sums[h][j] += __shfl_xor_sync(kAllLanes, sums[h][j], distance);
        }
      }
    }
    __syncthreads();  // all have read their weights
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (has_column_ && group_ % (kWarp / kLanes) == 0) {
        StoreFloats(shared_ + (warp * kHeads + h) * dim + lane_ * kVector, sums[h]);
      }
    }
    SoftmaxOfHead* softmax = SoftmaxInShared();
    if (threadIdx.x % kWarp == 0 && warp < kHeads) softmax[warp] = softmax_;
    __syncthreads();
    Finish(softmax);
  }

  __device__ SoftmaxOfHead* SoftmaxInShared() const {
    return reinterpret_cast<SoftmaxOfHead*>(shared_ + kWarps * kHeads * args_.kv.head_dim);
  }

  __device__ void Finish(const SoftmaxOfHead* softmax) {
    const int dim = static_cast<int>(args_.kv.head_dim);
    const ItemOutput<float, kLanes * kVector> output(args_, item_);
    for (int i = static_cast<int>(threadIdx.x); i < output.NumPlaces(); i += kThreads) {
      const int head = output.HeadOf(i);
      const int element = min(output.ElementOf(i), dim - 4);
      float4 sum{0.0f, 0.0f, 0.0f, 0.0f};
      for (int warp = 0; warp < kWarps; ++warp) {
        const float* of_warp = shared_ + (warp * kHeads + head) * dim + element;
        sum = AddScaled(sum, *reinterpret_cast<const float4*>(of_warp), 1.0f);
      }
      output.Take(i, sum, softmax[head]);
    }
    output.End(reinterpret_cast<DecodePart*>(shared_));
  }

  const DecodeKernelArgs& args_;
  const Item& item_;
  float* const shared_;
  int begin_;    // position of the split's first key
  int count_;    // keys of the split
  int skipped_;  // of them outside the window
  int lane_;     // of a key
  int group_;    // of lanes
  bool has_column_;
  const int32_t* table_;
  SoftmaxOfHead softmax_{};
};

inline constexpr int kLanesBlocks =
    2;  // that run side by side: what their registers leave room for

template <int kLanes>
__device__ inline void RunDecodeOnLanes(const DecodeKernelArgs& args) {
  WaitForPrevious();
  const int num_items = *args.splits.size * args.items_per_split.divisor;
  for (int i = static_cast<int>(blockIdx.x);; i += static_cast<int>(gridDim.x)) {
    if (i >= num_items) return;
    const Item item = ItemAt(args, i, args.splits.splits[SplitIndexAt(args, i)]);
    LanesWorker<kLanes>(args, item, static_cast<float*>(DynamicShared())).Run();
    __syncthreads();  // shared memory goes to the next item
  }
}

inline LaunchShape LanesLaunchShape(int64_t head_dim) {
  const int64_t scores = kMaxSplit * kMaxItemHeads;
  const int64_t sums = kLanesThreads / kWarp * kMaxItemHeads * head_dim + 2 * kMaxItemHeads;
  const int64_t parts = kLanesThreads * sizeof(DecodePart) / sizeof(float);
  const int64_t floats = max(max(scores, sums), parts);
  return {.grid = dim3(static_cast<unsigned>(NumMultiprocessors() * kLanesBlocks)),
          .threads = kLanesThreads,
          .shared_bytes = static_cast<size_t>(floats) * sizeof(float)};
}

}  // namespace mlc_native::kernels::cuda
