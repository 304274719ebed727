// DecodeAttention: one query row per sequence. The keys of a row are divided into splits, on which
// blocks work in parallel.
//
// An item of work is a split of a row's keys with one kv head and up to kMaxItemHeads of the query
// heads that read it, so keys and values are loaded once for all of them. Blocks are persistent and
// take items in turn from a list (decode_items.cuh), so the grid depends only on the device, and a
// captured launch fits any lengths. The steps of an item:
//   1. scores of all keys, a group of lanes per key, into shared memory
//   2. softmax of each head over the split, a warp per head
//   3. sums of the values, a group of lanes per key, added up over the groups in a fixed order
// A row with one split is then finished. Otherwise the parts go to the workspace, and the block
// that finishes the last one merges them, in the order of the splits.
//
// Bytes: keys and values once; per split 8 head_dim bytes of parts for each query head.
#include "kernels/cuda/decode_items.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kUnroll = 4;  // keys that a group of lanes loads at a time
constexpr float kLog2E = 1.4426950408889634f;

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

// ---- The kernel ----

// kHeads: query heads of an item, the last ones maybe unused; kLanes: that hold a key, 8 elements
// each.
template <typename T, typename Kv, int kHeads, int kLanes>
class Worker {
 public:
  __device__ Worker(const DecodeKernelArgs& args, const Item& item, float* shared)
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
    RawVector8<Kv> first_values[kUnroll];  // arrive meanwhile
    Load(args_.kv.v, group_, first_values);
    __syncthreads();
    Softmax();
    __syncthreads();
    Values(first_values);
  }

 private:
  static constexpr int kGroups = kThreads / kLanes;
  static constexpr int kDots = kUnroll * kHeads;
  static constexpr int kDotsPerLane = kDots > kLanes ? kDots / kLanes : 1;
  static constexpr int kLanesPerDot = kDots < kLanes ? kLanes / kDots : 1;  // that have its sum

  // Rows of kUnroll keys from `key` on, kGroups apart. All are loaded, page numbers first, so that
  // they are in flight together: instead of keys that the row does not see there is the
  // nearest one that it sees, and lanes without a column have the first one. The reader leaves them
  // out, and needs them to be finite.
  __device__ void Load(const void* pages, int key, RawVector8<Kv> (&rows)[kUnroll]) const {
    unsigned positions[kUnroll];
    int32_t page[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int seen = max(min(key + u * kGroups, count_ - 1), skipped_);
      positions[u] = static_cast<unsigned>(begin_ + seen);
      page[u] = table_[positions[u] / kKvPageSize];
    }
    const auto dim = static_cast<int>(args_.kv.head_dim);
    const Kv* from = static_cast<const Kv*>(pages) + item_.kv_head * kKvPageSize * dim +
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
    const int first_dot = FirstSum<kDots, kLanes>();
    for (int key = group_; key - group_ < count_; key += kUnroll * kGroups) {
      RawVector8<Kv> rows[kUnroll];
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
    const float score = dot * args_.a.scale * args_.kv.k_scale;
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
  __device__ void Values(RawVector8<Kv> (&rows)[kUnroll]) {
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
    float2* softmax = SoftmaxInShared();
    if (threadIdx.x % kWarp == 0 && warp < kHeads) softmax[warp] = softmax_;
    __syncthreads();
    Finish(softmax);
  }

  __device__ float2* SoftmaxInShared() const {
    return reinterpret_cast<float2*>(shared_ + kWarps * kHeads * args_.kv.head_dim);
  }

  __device__ void Finish(const float2* softmax) {
    const int dim = static_cast<int>(args_.kv.head_dim);
    const DecodeWorkspace& to = args_.workspace;
    const int64_t first = item_.split_index * args_.a.q_heads + item_.first_head;
    for (int i = static_cast<int>(threadIdx.x); i < item_.num_heads * dim; i += kThreads) {
      float sum = 0.0f;
      for (int warp = 0; warp < kWarps; ++warp) sum += shared_[warp * kHeads * dim + i];
      if (item_.split.num_splits == 1) {
        const float2 of_head = softmax[i / dim];
        StoreOutput(i, sum / (of_head.y + Sink(item_.first_head + i / dim, of_head.x)));
      } else {
        to.parts[first * dim + i] = sum;
      }
    }
    if (item_.split.num_splits == 1) return;
    for (int h = static_cast<int>(threadIdx.x); h < item_.num_heads; h += kThreads) {
      to.softmax[first + h] = softmax[h];
    }
    if (IsLastOfRow()) Merge();
  }

  // What the head's sink adds to a sum of weights in front of which 2^-max is left out.
  __device__ float Sink(int64_t head, float max) const {
    if (args_.a.sinks == nullptr) return 0.0f;
    return Exp2(kLog2E * ToFloat(static_cast<const T*>(args_.a.sinks)[head]) - max);
  }

  __device__ void StoreOutput(int i, float value) const {
    T* out = static_cast<T*>(args_.a.out) + item_.split.row * args_.a.ldo +
             item_.first_head * args_.kv.head_dim;
    out[i] = FromFloat<T>(value * args_.kv.v_scale);
  }

  // Whether all other splits have written their parts, which this block then sees.
  __device__ bool IsLastOfRow() const {
    int32_t* num_done =
        args_.workspace.num_done + item_.split.row * args_.a.q_heads + item_.first_head;
    __syncthreads();
    int is_last = 0;
    if (threadIdx.x == 0) {
      is_last = CountForOthers(num_done) == item_.split.num_splits - 1 ? 1 : 0;
      if (is_last != 0) *num_done = 0;  // for the next call
    }
    return __syncthreads_or(is_last) != 0;
  }

  __device__ void Merge() const {
    const int dim = static_cast<int>(args_.kv.head_dim);
    const int64_t first_split = item_.split_index - item_.split.of_row;
    for (int i = static_cast<int>(threadIdx.x); i < item_.num_heads * dim; i += kThreads) {
      const int64_t head = item_.first_head + i / dim;
      float max = -INFINITY;
      float sum = 0.0f;
      float value = 0.0f;
      for (int s = 0; s < item_.split.num_splits; ++s) {
        const int64_t at = (first_split + s) * args_.a.q_heads + head;
        const float2 softmax = LoadOthers(args_.workspace.softmax + at);
        const float part = LoadOthers(args_.workspace.parts + at * dim + i % dim);
        const float new_max = fmaxf(max, softmax.x);
        const float old_factor = Exp2(max - new_max);
        const float factor = Exp2(softmax.x - new_max);
        sum = sum * old_factor + softmax.y * factor;
        value = value * old_factor + part * factor;
        max = new_max;
      }
      StoreOutput(i, value / (sum + Sink(head, max)));
    }
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
  float2 softmax_{};
};

size_t SharedFloats(int heads, int64_t head_dim) {
  const int64_t scores = kMaxSplit * heads;
  const int64_t sums = kWarps * heads * head_dim;
  return static_cast<size_t>((scores > sums ? scores : sums) + 2 * heads);
}

// That run side by side: what their registers leave room for.
constexpr int BlocksPerMultiprocessor(int heads) { return heads <= 4 ? 3 : 2; }

template <typename T, typename Kv, int kHeads, int kLanes>
__global__ void __launch_bounds__(kThreads, BlocksPerMultiprocessor(kHeads))
    DecodeAttentionKernel(const __grid_constant__ DecodeKernelArgs args) {
  WaitForPrevious();
  const int num_items = *args.splits.size * static_cast<int>(args.kv.kv_heads) * args.pieces;
  for (int i = static_cast<int>(blockIdx.x);; i += static_cast<int>(gridDim.x)) {
    const Item item = FindItem(args, i);
    if (i >= num_items) return;
    Worker<T, Kv, kHeads, kLanes>(args, item, static_cast<float*>(DynamicShared())).Run();
    __syncthreads();  // shared memory goes to the next item
  }
}

template <typename T, typename Kv, int kHeads>
void LaunchForDim(const DecodeKernelArgs& args, Stream stream) {
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(NumMultiprocessors() * BlocksPerMultiprocessor(kHeads))),
      .threads = kThreads,
      .shared_bytes = SharedFloats(kHeads, args.kv.head_dim) * sizeof(float)};
  if (args.kv.head_dim <= 8 * kVector) {
    return Launch(DecodeAttentionKernel<T, Kv, kHeads, 8>, shape, stream, args);
  }
  if (args.kv.head_dim <= 16 * kVector) {
    return Launch(DecodeAttentionKernel<T, Kv, kHeads, 16>, shape, stream, args);
  }
  Launch(DecodeAttentionKernel<T, Kv, kHeads, 32>, shape, stream, args);
}

template <typename T, typename Kv>
void LaunchForHeads(const DecodeKernelArgs& args, Stream stream) {
  if (args.group <= 2) return LaunchForDim<T, Kv, 2>(args, stream);
  if (args.group <= 4) return LaunchForDim<T, Kv, 4>(args, stream);
  LaunchForDim<T, Kv, 8>(args, stream);
}

// ---- Workspace ----

size_t AlignUp(size_t bytes) { return (bytes + 15) / 16 * 16; }

DecodeWorkspace Place(void* data, int64_t max_splits, int64_t q_heads) {
  auto* bytes = static_cast<char*>(data);
  DecodeWorkspace workspace;
  workspace.num_done = reinterpret_cast<int32_t*>(bytes);
  bytes += AlignUp(ZeroedDecodeBytes(q_heads));
  workspace.softmax = reinterpret_cast<float2*>(bytes);
  bytes += AlignUp(static_cast<size_t>(max_splits * q_heads) * sizeof(float2));
  workspace.parts = reinterpret_cast<float*>(bytes);
  return workspace;
}

}  // namespace

size_t ZeroedDecodeBytes(int64_t q_heads) {
  return static_cast<size_t>(kMaxDecodeRows * q_heads) * sizeof(int32_t);
}

size_t DecodeWorkspaceBytes(int64_t max_splits, int64_t q_heads, int64_t head_dim) {
  return AlignUp(ZeroedDecodeBytes(q_heads)) +
         AlignUp(static_cast<size_t>(max_splits * q_heads) * sizeof(float2)) +
         static_cast<size_t>(max_splits * q_heads * head_dim) * sizeof(float);
}

void DecodeAttention(const KvPages& kv, const AttentionArgs& args, const DecodeRows& rows,
                     Stream stream) {
  MLC_CHECK(kv.head_dim % kVector == 0 && kv.head_dim <= kMaxHeadDim) << kv.head_dim;
  MLC_CHECK(args.q_heads % kv.kv_heads == 0) << args.q_heads << " for " << kv.kv_heads;
  MLC_CHECK(rows.m <= kMaxDecodeRows && rows.max_splits > 0) << rows.m;
  if (rows.m == 0) return;
  MLC_CHECK(rows.workspace != nullptr && rows.splits != nullptr);
  const auto group = static_cast<int>(args.q_heads / kv.kv_heads);
  const DecodeKernelArgs kernel_args{
      .kv = kv,
      .a = args,
      .splits = SplitsOf(rows),
      .workspace = Place(rows.workspace, rows.max_splits, args.q_heads),
      .group = group,
      .pieces = (group + kMaxItemHeads - 1) / kMaxItemHeads};
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    WithKvFormat<T>(kv.format, args.dtype, [&](auto kv_tag) {
      LaunchForHeads<T, typename decltype(kv_tag)::Type>(kernel_args, stream);
    });
  });
}

}  // namespace mlc_native::kernels::cuda
