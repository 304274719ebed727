// Attention to latents and to wide heads: up to 32 query heads and tokens read the same keys
// (latent_items.cuh).
//
// Single rows: an item of work is a split of a row's keys and up to 16 or 32 of its query heads.
// Blocks are persistent and take items in turn from the list of splits (decode_items.cuh). Where a
// row has several splits, their parts go to the workspace, and MergeSplitsKernel adds them up in
// their order: a block of its own for each row and head, because the parts of all heads would be
// too much for the block that finishes last.
//
// Prompts: an item is up to 32 rows of a tile, tokens times query heads, and has a block of its
// own.
//
// Bytes: 2 (latent_dim + rope_dim) for a key, once for all heads of an item; per split 8 latent_dim
// of parts for each query head. Operations: 2 (2 latent_dim + rope_dim) per query head and key. Of
// wide heads, 4 head_dim bytes for a key and its value, and as many operations.
#include "kernels/cuda/latent_items.cuh"

namespace mlc_native::kernels::cuda {
inline namespace latent_attention_cu {

// ---- float32, without tensor cores ----

constexpr int kFloatThreads = 256;
constexpr int kFloatWarps = kFloatThreads / kWarp;
static_assert(kFloatWarps == kMaxItemHeads, "a warp has the softmax of a head");

struct FloatShared {
  float queries[kMaxItemHeads][kMaxLatentDim + kMaxLatentRopeDim];
  float weights[kMaxItemHeads][kMaxSplit];  // at first, scores
  SoftmaxOfHead softmax[kMaxItemHeads];
};

// The heads [first, first + num_heads) of a split, which read one KV head.
__device__ inline void RunFloatItem(const LatentArgs& args, int index, int kv_head, int first,
                                    int num_heads, FloatShared& shared) {
  const DecodeSplit split = args.splits.splits[index];
  const auto dim = static_cast<int>(args.kv.head_dim);
  const auto value_dim = static_cast<int>(args.value_dim);
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp;
  const int lane = thread % kWarp;
  const float* q = static_cast<const float*>(args.a.q) + split.row * args.a.ldq + first * dim;
  for (int i = thread; i < num_heads * dim; i += kFloatThreads)
    shared.queries[i / dim][i % dim] = q[i];
  __syncthreads();
  const int32_t* table = args.a.block_tables + split.table * args.a.ld_block_tables;
  const int32_t* chosen =
      args.a.chosen == nullptr ? nullptr : args.a.chosen + split.row * args.a.ld_chosen;
  const auto row_at = [&](const void* pages, int index) {
    const int key = split.begin + index;
    const int position = chosen == nullptr ? key : chosen[key];
    const int64_t head = table[position / kKvPageSize] * args.kv.kv_heads + kv_head;
    const int64_t slot = head * kKvPageSize + position % kKvPageSize;
    return static_cast<const float*>(pages) + slot * dim;
  };
  const void* const values = args.kv.v != nullptr ? args.kv.v : args.kv.k;
  for (int k = warp; k < split.count; k += kFloatWarps) {
    const float* key = row_at(args.kv.k, k);
    for (int head = 0; head < num_heads; ++head) {
      float sum = 0.0f;
      for (int i = lane; i < dim; i += kWarp) sum += key[i] * shared.queries[head][i];
      sum = ReduceWarp(sum, Plus());
      if (lane == 0) shared.weights[head][k] = kLog2E * args.a.scale * sum;
    }
  }
  __syncthreads();
  if (warp < num_heads) {
    float* const weights = shared.weights[warp];
    float max = -INFINITY;
    for (int k = lane; k < split.count; k += kWarp) max = fmaxf(max, weights[k]);
    max = ReduceWarp(max, Max());
    float total = 0.0f;
    for (int k = lane; k < split.count; k += kWarp) {
      weights[k] = Exp2(weights[k] - max);
      total += weights[k];
    }
    total = ReduceWarp(total, Plus());
    if (lane == 0) shared.softmax[warp] = {max, total};
  }
  __syncthreads();
  for (int column = 2 * thread; column < value_dim; column += 2 * kFloatThreads) {
    for (int head = 0; head < num_heads; ++head) {
      float x0 = 0.0f;
      float x1 = 0.0f;
      for (int k = 0; k < split.count; ++k) {
        const float* value = row_at(values, k) + dim - value_dim + column;
        x0 += shared.weights[head][k] * value[0];
        x1 += shared.weights[head][k] * value[1];
      }
      LatentPlace<float>::Of(args, split.num_splits, index, split.row, first + head,
                             shared.softmax[head], column == 0)
          .Store(column, x0, x1);
    }
  }
  __syncthreads();  // shared memory goes to the next item
}

__global__ void __launch_bounds__(kFloatThreads)
    FloatLatentAttentionKernel(const __grid_constant__ LatentArgs args) {
  WaitForPrevious();
  __shared__ FloatShared shared;
  const int num_items = *args.splits.size * args.items.divisor;
  for (int i = static_cast<int>(blockIdx.x); i < num_items; i += static_cast<int>(gridDim.x)) {
    const LatentItem item = LatentItem::Of(args, i);
    const int first = item.piece * kMaxItemHeads;
    RunFloatItem(args, item.index, item.kv_head, item.kv_head * args.heads.divisor + first,
                 min(args.heads.divisor - first, kMaxItemHeads), shared);
  }
}

// ---- Merge ----

constexpr int kMergeThreads = static_cast<int>(kMaxLatentDim) / 4;
constexpr int kMergedAtOnce = 8;  // whose parts a thread loads together

// A block of a head and a row. A thread has four neighbours.
template <typename T>
__global__ void __launch_bounds__(kMergeThreads)
    MergeSplitsKernel(const __grid_constant__ LatentArgs args) {
  WaitForPrevious();
  const auto head = static_cast<int>(blockIdx.x);
  const auto row = static_cast<int>(blockIdx.y);
  const int begin = args.splits.first_of_row[row];
  const int end = args.splits.first_of_row[row + 1];
  const int column = static_cast<int>(threadIdx.x) * 4;
  if (end - begin < 2 || column >= args.value_dim) return;
  DecodePart sum;
  for (int i = begin; i < end; i += kMergedAtOnce) {
    DecodePart parts[kMergedAtOnce];
#pragma unroll
    for (int j = 0; j < kMergedAtOnce; ++j) {
      const int64_t at = min(i + j, end - 1) * args.a.q_heads + head;
      parts[j] = {args.softmax[at],
                  *reinterpret_cast<const float4*>(args.parts + at * args.value_dim + column)};
    }
#pragma unroll
    for (int j = 0; j < kMergedAtOnce; ++j) {
      if (i + j < end) sum.Add(parts[j]);
    }
  }
  const float4 x = Scaled(sum.sum, 1.0f / sum.softmax.y);
  T* const out = static_cast<T*>(args.a.out) + row * args.a.ldo + head * args.value_dim + column;
  StorePair(out, x.x, x.y);
  StorePair(out + 2, x.z, x.w);
}

// ---- Launches ----

void CheckWideHeads(const KvPages& kv, const AttentionArgs& args) {
  MLC_CHECK(kv.head_dim % kVector == 0 && kv.head_dim <= kMaxWideHeadDim && kv.v != nullptr &&
            args.q_heads % kv.kv_heads == 0)
      << args.q_heads << " for " << kv.kv_heads << " of " << kv.head_dim;
}

void CheckAttention(const KvPages& kv, const AttentionArgs& args) {
  kv.latent_dim > 0 ? CheckLatents(kv) : CheckWideHeads(kv, args);
  MLC_CHECK(args.window.size == 0 && args.soft_cap == 0 && args.sinks == nullptr && !args.bias);
  MLC_CHECK(args.chosen == nullptr || kv.latent_dim > 0);
}

LatentArgs ArgsOf(const KvPages& kv, const AttentionArgs& args) {
  LatentArgs kernel_args{};
  kernel_args.kv = kv;
  kernel_args.a = args;
  kernel_args.value_dim = kv.value_dim();
  kernel_args.heads = DivisorOf(static_cast<int>(args.q_heads / kv.kv_heads));
  return kernel_args;
}

// Of so many tokens, of which a block has kRows rows at most.
void DivideTokens(int64_t tokens, int kRows, LatentArgs* args) {
  const int pieces = (static_cast<int>(tokens) * args->heads.divisor + kRows - 1) / kRows;
  args->pieces = DivisorOf(pieces);
  args->items = DivisorOf(pieces * static_cast<int>(args->kv.kv_heads));
}

// As many as run at once: GPUs with little shared memory hold fewer blocks than others.
template <typename Shape>
int64_t PersistentBlocks(size_t shared_bytes) {
  constexpr size_t kReserved = 1024;  // by CUDA, of a block
  const size_t fit = SharedBytesOfMultiprocessor() / (shared_bytes + kReserved);
  return int64_t{NumMultiprocessors()} *
         std::min<int64_t>(Shape::kBlocks, std::max<size_t>(fit, 1));
}

template <typename T, typename Kv, typename Shape>
void LaunchWorkers(const LatentArgs& args, int64_t num_blocks, Stream stream) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(num_blocks)),
                          .threads = Shape::kThreads,
                          .shared_bytes = sizeof(typename Shape::template Shared<T, Kv>)};
  Launch(LatentAttentionKernel<T, Kv, Shape, LatentRules>, shape, stream, args);
}

template <typename T, typename Kv, typename Shape>
void LaunchForSplits(LatentArgs args, Stream stream) {
  DivideTokens(1, Shape::kRows, &args);
  const size_t bytes = sizeof(typename Shape::template Shared<T, Kv>);
  LaunchWorkers<T, Kv, Shape>(args, PersistentBlocks<Shape>(bytes), stream);
}

template <typename T, typename Kv, template <int> typename Shape>
void LaunchForHeads(const LatentArgs& args, Stream stream) {
  if (args.heads.divisor <= Shape<1>::kRows) return LaunchForSplits<T, Kv, Shape<1>>(args, stream);
  LaunchForSplits<T, Kv, Shape<2>>(args, stream);
}

template <typename T, typename Kv, typename Shape>
void LaunchForTiles(LatentArgs args, int64_t tile_rows, Stream stream) {
  DivideTokens(tile_rows, Shape::kRows, &args);
  LaunchWorkers<T, Kv, Shape>(args, args.num_tiles * args.items.divisor, stream);
}

}  // namespace latent_attention_cu

void CheckLatents(const KvPages& kv) {
  const int64_t rope = kv.head_dim - kv.latent_dim;
  MLC_CHECK(kv.kv_heads == 1 && kv.v == nullptr && (kv.latent_dim | rope) % kVector == 0 &&
            kv.latent_dim > 0 && kv.latent_dim <= kMaxLatentDim && rope >= 0 &&
            rope <= kMaxLatentRopeDim)
      << kv.kv_heads << " KV heads, " << kv.latent_dim << " of " << kv.head_dim;
}

void LatentDecodeAttention(const KvPages& kv, const AttentionArgs& args, const DecodeRows& rows,
                           Stream stream) {
  CheckAttention(kv, args);
  MLC_CHECK(rows.m <= kMaxDecodeRows && rows.max_splits > 0) << rows.m;
  if (rows.m == 0) return;
  MLC_CHECK(rows.workspace != nullptr && rows.splits != nullptr);
  const DecodeWorkspace workspace = WorkspaceOf(rows, args.q_heads);
  LatentArgs kernel_args = ArgsOf(kv, args);
  kernel_args.splits = SplitsOf(rows);
  kernel_args.softmax = workspace.softmax;
  kernel_args.parts = workspace.parts;
  const dim3 all_heads(static_cast<unsigned>(args.q_heads), static_cast<unsigned>(rows.m));
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    WithKvFormat<T>(kv.format, args.dtype, [&](auto kv_tag) {
      using Kv = typename decltype(kv_tag)::Type;
      if constexpr (sizeof(T) == 4) {
        DivideTokens(1, kMaxItemHeads, &kernel_args);
        const dim3 grid(static_cast<unsigned>(PersistentBlocks<LatentShape<1>>(0)));
        Launch(FloatLatentAttentionKernel, {.grid = grid, .threads = kFloatThreads}, stream,
               kernel_args);
      } else if (kv.latent_dim > 0) {
        LaunchForHeads<T, Kv, LatentShape>(kernel_args, stream);
      } else {
        LaunchForHeads<T, Kv, WideShape>(kernel_args, stream);
      }
    });
    Launch(MergeSplitsKernel<T>, {.grid = all_heads, .threads = kMergeThreads}, stream,
           kernel_args);
  });
}

void LatentPrefillAttention(const KvPages& kv, const AttentionArgs& args, const PrefillTile* tiles,
                            int64_t num_tiles, Stream stream) {
  CheckAttention(kv, args);
  MLC_CHECK(args.chosen == nullptr);
  if (num_tiles == 0) return;
  LatentArgs kernel_args = ArgsOf(kv, args);
  kernel_args.tiles = tiles;
  kernel_args.num_tiles = num_tiles;
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (sizeof(T) == 2) {
      WithKvFormat<T>(kv.format, args.dtype, [&](auto kv_tag) {
        using Kv = typename decltype(kv_tag)::Type;
        if (kv.latent_dim > 0) {
          LaunchForTiles<T, Kv, LatentShape<2>>(kernel_args, kLatentTileRows, stream);
        } else {
          LaunchForTiles<T, Kv, WideShape<2>>(kernel_args, kWideTileRows, stream);
        }
      });
    } else {
      MLC_CHECK(false) << "no tensor cores for float32: LatentDecodeAttention computes such rows";
    }
  });
}

}  // namespace mlc_native::kernels::cuda
