// LanesWorker: decode attention without tensor cores, for float32 and for biases by distance.
//
// Keys and values are loaded once for all query heads of an item (decode_items.cuh). There is one
// kernel of a type for any number of them and any size of heads, because float32 is for
// comparisons, few families have biases, and a kernel takes as long to compile as one on tensor
// cores. The steps of a block, for an item:
//   1. scores of all keys, a warp per key, into shared memory
//   2. softmax of each head over the split, a warp per head
//   3. sums of the values, a warp per key, added up over the warps in a fixed order
#pragma once

#include "kernels/cuda/decode_finish.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {

inline constexpr int kLanesThreads = 256;

// Sums each values[i] over the warp, in the same order for all i. Lane i gets that of values[i].
__device__ inline float SumOverLanes(float (&values)[kWarp]) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const bool upper = (threadIdx.x & distance) != 0;
#pragma unroll
    for (int i = 0; i < distance; ++i) {
      const float mine = upper ? values[i + distance] : values[i];
      const float others = upper ? values[i] : values[i + distance];
      values[i] = mine + __shfl_xor_sync(kAllLanes, others, distance);
    }
  }
  return values[0];
}

// The lanes of a warp hold a key, 8 elements each, the last ones maybe unused.
template <typename T>
class LanesWorker {
 public:
  __device__ LanesWorker(const DecodeKernelArgs& args, const Item& item, float* shared)
      : args_(args), item_(item), shared_(shared) {
    begin_ = item.split.begin;
    count_ = item.split.count;
    skipped_ = item.split.skipped;
    lane_ = static_cast<int>(threadIdx.x) % kWarp;
    warp_ = static_cast<int>(threadIdx.x) / kWarp;
    has_column_ = lane_ * kVector < args.kv.head_dim;
    table_ = args.a.block_tables + item.split.table * args.a.ld_block_tables;
  }

  __device__ void Run() {
    Scores();
    RawVector8<T> first_values[kUnroll];  // arrive meanwhile
    Load(args_.kv.v, warp_, first_values);
    __syncthreads();
    Softmax();
    __syncthreads();
    Values(first_values);
  }

 private:
  static constexpr int kHeads = kMaxItemHeads;  // of an item, the last ones maybe unused
  static constexpr int kThreads = kLanesThreads;
  static constexpr int kWarps = kThreads / kWarp;
  static constexpr int kUnroll = 4;  // keys that a warp loads at a time
  static constexpr int kDots = kUnroll * kHeads;
  static_assert(kDots == kWarp);  // each lane is left with one of their sums

  // Rows of kUnroll keys from `key` on, kWarps apart. All are loaded, page numbers first, so that
  // they are in flight together: instead of keys that the row does not see there is the
  // nearest one that it sees, and lanes without a column have the first one. The reader leaves them
  // out, and needs them to be finite.
  __device__ void Load(const void* pages, int key, RawVector8<T> (&rows)[kUnroll]) const {
    unsigned positions[kUnroll];
    int32_t page[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int seen = max(min(key + u * kWarps, count_ - 1), skipped_);
      positions[u] = static_cast<unsigned>(begin_ + seen);
      page[u] = table_[positions[u] / kKvPageSize];
    }
    const auto dim = static_cast<int>(args_.kv.head_dim);
    const T* from = static_cast<const T*>(pages) + item_.kv_head * kKvPageSize * dim +
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
    const T* from = static_cast<const T*>(args_.a.q) + item_.split.row * args_.a.ldq +
                    item_.first_head * args_.kv.head_dim + lane_ * kVector;
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (has_column_ && h < item_.num_heads) LoadFloats(from + h * args_.kv.head_dim, q[h]);
    }
    for (int key = warp_; key - warp_ < count_; key += kUnroll * kWarps) {
      RawVector8<T> rows[kUnroll];
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
      const float dot = SumOverLanes(dots);
      const int k = key + lane_ / kHeads * kWarps;
      if (k >= count_) continue;
      const int head = lane_ % kHeads;
      shared_[k * kHeads + head] = k < skipped_ ? -INFINITY : Score(dot, head, k);
    }
  }

  // Of the item's head and key of these numbers.
  __device__ float Score(float dot, int head, int key) const {
    float score = dot * args_.a.scale;
    const float cap = args_.a.soft_cap;
    if (cap > 0) score = cap * tanhf(score / cap);
    if (head < item_.num_heads) score += Bias(item_.first_head + head, begin_ + key);
    return kLog2E * score;
  }

  __device__ float Bias(int head, int position) const {
    const DistanceBias& bias = args_.a.bias;
    const int distance = position - item_.split.position;
    float sum = 0.0f;
    if (bias.slopes != nullptr) sum = -bias.slopes[head] * static_cast<float>(abs(distance));
    if (bias.table != nullptr) sum += *bias.Entries(head, distance);
    return sum;
  }

  // Scores become weights; the maximum and the sum of head h stay in warp h.
  __device__ void Softmax() {
    const int head = warp_;
    if (head >= kHeads) return;
    float max = -INFINITY;
    for (int k = lane_; k < count_; k += kWarp) max = fmaxf(max, shared_[k * kHeads + head]);
    max = ReduceWarp(max, Max());
    float sum = 0.0f;
    for (int k = lane_; k < count_; k += kWarp) {
      const float weight = Exp2(shared_[k * kHeads + head] - max);
      shared_[k * kHeads + head] = weight;
      sum += weight;
    }
    softmax_ = {max, ReduceWarp(sum, Plus())};
  }

  // `rows`: the first ones.
  __device__ void Values(RawVector8<T> (&rows)[kUnroll]) {
    float sums[kHeads][kVector] = {};
    for (int key = warp_; key < count_; key += kUnroll * kWarps) {
      if (key != warp_) Load(args_.kv.v, key, rows);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int k = key + u * kWarps;
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
    AddUpWarps(sums);
  }

  // Over the warps through shared memory [warp, head, head_dim].
  __device__ void AddUpWarps(const float (&sums)[kHeads][kVector]) {
    const int dim = static_cast<int>(args_.kv.head_dim);
    __syncthreads();  // all have read their weights
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (has_column_) {
        StoreFloats(shared_ + (warp_ * kHeads + h) * dim + lane_ * kVector, sums[h]);
      }
    }
    SoftmaxOfHead* softmax = SoftmaxInShared();
    if (lane_ == 0 && warp_ < kHeads) softmax[warp_] = softmax_;
    __syncthreads();
    Finish(softmax);
  }

  __device__ SoftmaxOfHead* SoftmaxInShared() const {
    return reinterpret_cast<SoftmaxOfHead*>(shared_ + kWarps * kHeads * args_.kv.head_dim);
  }

  __device__ void Finish(const SoftmaxOfHead* softmax) {
    const int dim = static_cast<int>(args_.kv.head_dim);
    const ItemOutput<T, kWarp * kVector> output(args_, item_);
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
  int warp_;
  bool has_column_;
  const int32_t* table_;
  SoftmaxOfHead softmax_{};
};

inline constexpr int kLanesBlocks =
    2;  // that run side by side: what their registers leave room for

template <typename T>
__device__ void RunDecodeOnLanes(const DecodeKernelArgs& args) {
  WaitForPrevious();
  const int num_items = *args.splits.size * args.items_per_split.divisor;
  for (int i = static_cast<int>(blockIdx.x);; i += static_cast<int>(gridDim.x)) {
    if (i >= num_items) return;
    const Item item = ItemAt(args, i, args.splits.splits[SplitIndexAt(args, i)]);
    LanesWorker<T>(args, item, static_cast<float*>(DynamicShared())).Run();
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
