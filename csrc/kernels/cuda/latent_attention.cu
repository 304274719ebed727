// Latent attention: up to 32 query heads and tokens read the same keys (latent_worker.cuh).
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
// of parts for each query head. Operations: 2 (2 latent_dim + rope_dim) per query head and key.
#include "kernels/cuda/latent_worker.cuh"

namespace mlc_native::kernels::cuda {
inline namespace latent_attention_cu {

struct LatentArgs {
  KvPages kv;
  AttentionArgs a;
  const PrefillTile* tiles;  // of prompts; null: single rows
  int64_t num_tiles;
  DecodeSplits splits;
  float2* softmax;       // [splits, q_heads]: maximum (base 2) and sum
  float* parts;          // [splits, q_heads, latent_dim]
  DecodeDivisor heads;   // of a token
  DecodeDivisor pieces;  // of a split or a tile: some of the tokens times the heads
};

// Consecutive tokens, and keys from `begin` on, which is the start of a page. Each token sees them
// up to its own position. A split of a single row is a token whose position is that of its last
// key.
struct LatentTokens {
  __device__ static LatentTokens Of(const PrefillTile& tile) {
    return {.row = tile.row_begin,
            .num_tokens = tile.num_rows,
            .table = tile.table,
            .begin = 0,
            .position = tile.first_position,
            .num_splits = 1};
  }
  __device__ static LatentTokens Of(const DecodeSplit& split) {
    return {.row = split.row,
            .num_tokens = 1,
            .table = split.table,
            .begin = split.begin,
            .position = split.begin + split.count - 1,
            .num_splits = split.num_splits};
  }

  int row;  // of q and out
  int num_tokens;
  int table;
  int begin;
  int position;  // of the first token
  int num_splits;
};

template <typename T>
__device__ inline void StorePair(T* to, float x0, float x1) {
  if constexpr (sizeof(T) == 2) {
    *reinterpret_cast<uint32_t*>(to) = Pack<T>(x0, x1);
  } else {
    *reinterpret_cast<float2*>(to) = {x0, x1};
  }
}

// Where the sums of a head go: to the output, divided by those of their weights, or to the parts of
// split `index`, or nowhere. is_first: the thread stores the softmax of a part.
template <typename T>
struct LatentPlace {
  void* to = nullptr;  // T of the output, float of a part
  float factor = 1.0f;
  bool is_part = false;

  __device__ static LatentPlace Of(const LatentArgs& args, int num_splits, int index, int row,
                                   int head, SoftmaxOfHead softmax, bool is_first) {
    if (num_splits == 1) {
      T* const out = static_cast<T*>(args.a.out) + row * args.a.ldo;
      return {.to = out + head * args.kv.latent_dim, .factor = 1.0f / softmax.y};
    }
    const int64_t part = static_cast<int64_t>(index) * args.heads.divisor + head;
    if (is_first) args.softmax[part] = softmax;
    return {.to = args.parts + part * args.kv.latent_dim, .is_part = true};
  }

  __device__ void Store(int column, float x0, float x1) const {
    if (to == nullptr) return;
    if (is_part) {
      StorePair(static_cast<float*>(to) + column, x0, x1);
    } else {
      StorePair(static_cast<T*>(to) + column, factor * x0, factor * x1);
    }
  }
};

// Blocks take items in turn: pieces of tiles, or of splits.
template <typename T, typename Kv, typename Shape, typename Rules>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    LatentAttentionKernel(const __grid_constant__ LatentArgs args) {
  WaitForPrevious();
  const bool is_prompt = args.tiles != nullptr;
  const int num_pieces = args.pieces.divisor;
  const int num_items =
      (is_prompt ? static_cast<int>(args.num_tiles) : *args.splits.size) * num_pieces;
  const auto tokens_of = [&](int index) {
    return is_prompt ? LatentTokens::Of(args.tiles[index])
                     : LatentTokens::Of(args.splits.splits[index]);
  };
  for (int i = static_cast<int>(blockIdx.x); i < num_items; i += static_cast<int>(gridDim.x)) {
    const int index = args.pieces.Quotient(i);
    const LatentTokens tokens = tokens_of(index);
    // Rows of the block are some of the tokens times the heads.
    const int first = (i - index * num_pieces) * Shape::kRows;
    const int end = tokens.num_tokens * args.heads.divisor;
    if (first >= end) continue;
    const auto token_of = [&](int row) { return args.heads.Quotient(first + row); };
    const auto head_of = [&](int row) { return first + row - token_of(row) * args.heads.divisor; };
    const int last = min(Shape::kRows, end - first) - 1;
    LatentWorker<T, Kv, Shape, Rules>(args.kv, args.a.scale, DynamicShared())
        .Run(
            {args.a.block_tables + tokens.table * args.a.ld_block_tables, tokens.begin,
             tokens.position + token_of(last) + 1},
            [&](int row) {
              return row > last ? nullptr
                                : static_cast<const T*>(args.a.q) +
                                      (tokens.row + token_of(row)) * args.a.ldq +
                                      head_of(row) * args.kv.head_dim;
            },
            [&](int row) { return row > last ? 0 : tokens.position + token_of(row) + 1; },
            [&](int row, SoftmaxOfHead softmax, bool is_first) -> LatentPlace<T> {
              if (row > last) return {};
              const LatentTokens again = tokens_of(index);  // which costs no registers until here
              return LatentPlace<T>::Of(args, again.num_splits, index, again.row + token_of(row),
                                        head_of(row), softmax, is_first);
            });
  }
}

// ---- float32, without tensor cores ----

constexpr int kFloatThreads = 256;
constexpr int kFloatWarps = kFloatThreads / kWarp;
static_assert(kFloatWarps == kMaxItemHeads, "a warp has the softmax of a head");

struct FloatShared {
  float queries[kMaxItemHeads][kMaxLatentDim + kMaxLatentRopeDim];
  float weights[kMaxItemHeads][kMaxSplit];  // at first, scores
  SoftmaxOfHead softmax[kMaxItemHeads];
};

// The heads [first, first + num_heads) of a split.
__device__ inline void RunFloatItem(const LatentArgs& args, int index, int first, int num_heads,
                                    FloatShared& shared) {
  const DecodeSplit split = args.splits.splits[index];
  const auto dim = static_cast<int>(args.kv.head_dim);
  const auto latent = static_cast<int>(args.kv.latent_dim);
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp;
  const int lane = thread % kWarp;
  const float* q = static_cast<const float*>(args.a.q) + split.row * args.a.ldq + first * dim;
  for (int i = thread; i < num_heads * dim; i += kFloatThreads)
    shared.queries[i / dim][i % dim] = q[i];
  __syncthreads();
  const int32_t* table = args.a.block_tables + split.table * args.a.ld_block_tables;
  const auto key_at = [&](int index) {
    const int position = split.begin + index;
    const int64_t slot = table[position / kKvPageSize] * kKvPageSize + position % kKvPageSize;
    return static_cast<const float*>(args.kv.k) + slot * dim;
  };
  for (int k = warp; k < split.count; k += kFloatWarps) {
    const float* key = key_at(k);
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
  for (int column = 2 * thread; column < latent; column += 2 * kFloatThreads) {
    for (int head = 0; head < num_heads; ++head) {
      float x0 = 0.0f;
      float x1 = 0.0f;
      for (int k = 0; k < split.count; ++k) {
        const float* value = key_at(k) + dim - latent + column;
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
  const int num_pieces = args.pieces.divisor;
  const int num_items = *args.splits.size * num_pieces;
  for (int i = static_cast<int>(blockIdx.x); i < num_items; i += static_cast<int>(gridDim.x)) {
    const int index = args.pieces.Quotient(i);
    const int first = (i - index * num_pieces) * kMaxItemHeads;
    RunFloatItem(args, index, first, min(args.heads.divisor - first, kMaxItemHeads), shared);
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
  if (end - begin < 2 || column >= args.kv.latent_dim) return;
  DecodePart sum;
  for (int i = begin; i < end; i += kMergedAtOnce) {
    DecodePart parts[kMergedAtOnce];
#pragma unroll
    for (int j = 0; j < kMergedAtOnce; ++j) {
      const int64_t at = min(i + j, end - 1) * args.a.q_heads + head;
      parts[j] = {args.softmax[at],
                  *reinterpret_cast<const float4*>(args.parts + at * args.kv.latent_dim + column)};
    }
#pragma unroll
    for (int j = 0; j < kMergedAtOnce; ++j) {
      if (i + j < end) sum.Add(parts[j]);
    }
  }
  const float4 x = Scaled(sum.sum, 1.0f / sum.softmax.y);
  T* const out =
      static_cast<T*>(args.a.out) + row * args.a.ldo + head * args.kv.latent_dim + column;
  StorePair(out, x.x, x.y);
  StorePair(out + 2, x.z, x.w);
}

// ---- Launches ----

void CheckAttention(const KvPages& kv, const AttentionArgs& args) {
  CheckLatents(kv);
  MLC_CHECK(args.window == 0 && args.soft_cap == 0 && args.sinks == nullptr);
}

// Of rows of a split or a tile, of which a block has kRows at most.
DecodeDivisor PiecesOf(int64_t rows, int kRows) {
  return DivisorOf((static_cast<int>(rows) + kRows - 1) / kRows);
}

LatentArgs ArgsOf(const KvPages& kv, const AttentionArgs& args) {
  LatentArgs kernel_args{};
  kernel_args.kv = kv;
  kernel_args.a = args;
  kernel_args.heads = DivisorOf(static_cast<int>(args.q_heads));
  return kernel_args;
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
  args.pieces = PiecesOf(args.a.q_heads, Shape::kRows);
  const size_t bytes = sizeof(typename Shape::template Shared<T, Kv>);
  LaunchWorkers<T, Kv, Shape>(args, PersistentBlocks<Shape>(bytes), stream);
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
        kernel_args.pieces = PiecesOf(args.q_heads, kMaxItemHeads);
        const dim3 grid(static_cast<unsigned>(PersistentBlocks<LatentShape<1>>(0)));
        Launch(FloatLatentAttentionKernel, {.grid = grid, .threads = kFloatThreads}, stream,
               kernel_args);
      } else if (args.q_heads <= LatentShape<1>::kRows) {
        LaunchForSplits<T, Kv, LatentShape<1>>(kernel_args, stream);
      } else {
        LaunchForSplits<T, Kv, LatentShape<2>>(kernel_args, stream);
      }
    });
    Launch(MergeSplitsKernel<T>, {.grid = all_heads, .threads = kMergeThreads}, stream,
           kernel_args);
  });
}

void LatentPrefillAttention(const KvPages& kv, const AttentionArgs& args, const PrefillTile* tiles,
                            int64_t num_tiles, Stream stream) {
  CheckAttention(kv, args);
  if (num_tiles == 0) return;
  using Shape = LatentShape<2>;
  LatentArgs kernel_args = ArgsOf(kv, args);
  kernel_args.tiles = tiles;
  kernel_args.num_tiles = num_tiles;
  kernel_args.pieces = PiecesOf(kLatentTileRows * args.q_heads, Shape::kRows);
  const int64_t num_blocks = num_tiles * kernel_args.pieces.divisor;
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (sizeof(T) == 2) {
      WithKvFormat<T>(kv.format, args.dtype, [&](auto kv_tag) {
        using Kv = typename decltype(kv_tag)::Type;
        LaunchWorkers<T, Kv, Shape>(kernel_args, num_blocks, stream);
      });
    } else {
      MLC_CHECK(false) << "no tensor cores for float32: LatentDecodeAttention computes such rows";
    }
  });
}

}  // namespace mlc_native::kernels::cuda
