// The choice of keys. WriteIndex: a warp per head of a row, and one for its key. ChooseKeys, for
// some rows at a time: scores of all keys, then the best of each row.
//
// Scores of 16 bits: a block has the queries of a row in shared memory and takes every so-manieth
// group of 64 keys, a warp 16 of them, times 16 heads on the tensor cores; each lane adds up the
// heads that it has, and then the lanes. Bytes: 2 head_dim per key and row. Operations: 2 heads
// head_dim per key and row.
//
// The best: a block of a row finds the smallest score that is chosen (row_select.cuh) and writes
// what is larger, and the first ones of those that are equal, in the order of positions. Bytes: 4
// per key, about five times, from the level-2 cache.
#include <algorithm>

#include "kernels/cuda/key_choice.h"
#include "kernels/cuda/rope_head.cuh"
#include "kernels/cuda/row_select.cuh"

namespace mlc_native::kernels::cuda {
inline namespace key_choice_cu {

// ---- Writing ----

constexpr int kIndexUnits = 4;  // heads, or the key
constexpr int kIndexThreads = kIndexUnits * kWarp;
static_assert(kMaxIndexDim <= kWarp * kVector);

struct WriteIndexKernelArgs {
  KvPages index;
  WriteIndexArgs a;
};

// A LayerNorm of a warp's vector; zeros behind its end.
template <typename T>
__device__ inline void NormalizeKey(const WriteIndexArgs& args, int dim, int column,
                                    float (&x)[kVector]) {
  const bool has_column = column < dim;
  float sum = 0.0f;
#pragma unroll
  for (float element : x) sum += element;
  const float mean = ReduceWarp(sum, Plus()) / static_cast<float>(dim);
  float squares = 0.0f;
#pragma unroll
  for (float& element : x) {
    element = has_column ? element - mean : 0.0f;
    squares += element * element;
  }
  squares = ReduceWarp(squares, Plus());
  const float scale = ReciprocalSqrt(squares / static_cast<float>(dim) + args.eps);
  float weight[kVector];
  float bias[kVector];
  LoadFloats(static_cast<const T*>(args.norm_weight) + (has_column ? column : 0), weight);
  LoadFloats(static_cast<const T*>(args.norm_bias) + (has_column ? column : 0), bias);
#pragma unroll
  for (int j = 0; j < kVector; ++j) x[j] = has_column ? x[j] * scale * weight[j] + bias[j] : 0.0f;
}

template <typename T>
__global__ void __launch_bounds__(kIndexThreads)
    WriteIndexKernel(const __grid_constant__ WriteIndexKernelArgs args) {
  WaitForPrevious();
  alignas(16) __shared__ float heads[kIndexUnits][kMaxIndexDim];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t row = blockIdx.x;
  const int64_t unit = static_cast<int64_t>(blockIdx.y) * kIndexUnits + warp;
  const int64_t slot = args.a.slots[row];
  if (unit > args.a.heads || slot < 0) return;
  const auto dim = static_cast<int>(args.index.head_dim);
  const bool is_key = unit == args.a.heads;
  const int column = static_cast<int>(threadIdx.x) % kWarp * kVector;
  T* const query = static_cast<T*>(args.a.queries) + (row * args.a.heads + unit) * dim;
  const T* const from = is_key ? static_cast<const T*>(args.a.keys) + row * dim : query;
  float x[kVector] = {};
  if (column < dim) LoadFloats(from + column, x);
  if (is_key) NormalizeKey<T>(args.a, dim, column, x);
  if (args.a.rotary_dim > 0) {
    Rotation(args.a, RowPlace(args.a.positions[row]), column).Apply(column, dim, heads[warp], x);
  }
  if (column >= dim) return;
  T* const key = static_cast<T*>(args.index.k) + slot * dim;  // a page has 16 of them, one head
  StoreFloats((is_key ? key : query) + column, x);
}

// ---- Scores ----

constexpr int kScoreWarps = 4;
constexpr int kScoreThreads = kScoreWarps * kWarp;
constexpr int kGroupKeys = 64;                       // of a block
constexpr int kWarpKeys = kGroupKeys / kScoreWarps;  // two tiles of 8
constexpr int kPadding = 8;                          // elements, behind each row in shared memory

struct ScoreArgs {
  KvPages index;
  ChooseKeysArgs a;
  int64_t ld_scores;
};

__device__ inline int64_t PageOf(const ScoreArgs& args, int64_t row, int64_t position) {
  const int64_t table = args.a.tables == nullptr ? row : args.a.tables[row];
  return args.a.block_tables[table * args.a.ld_block_tables + position / kKvPageSize];
}

// The elements of a row in shared memory, where heads and dims are padded to whole tiles.
__host__ __device__ inline int64_t PaddedRow(int64_t dim) {
  return (dim + 15) / 16 * 16 + kPadding;
}
__host__ __device__ inline int64_t PaddedHeads(int64_t heads) { return (heads + 15) / 16 * 16; }

// Copies rows of `dim` elements, and zeros behind them and in place of rows that are not there.
template <typename T, typename From>
__device__ inline void CopyToShared(T* to, int rows, int dim, const From& from) {
  const int chunks = static_cast<int>(PaddedRow(dim) - kPadding) / kVector;
  for (int i = static_cast<int>(threadIdx.x); i < rows * chunks; i += kScoreThreads) {
    const int row = i / chunks;
    const int column = i % chunks * kVector;
    const T* const of_row = from(row);
    const bool valid = of_row != nullptr && column < dim;
    CopyAsync16(to + row * PaddedRow(dim) + column, valid ? of_row + column : from(0), valid);
  }
}

// The scores of the warp's keys, which are rows of `keys`: those of columns 2 (lane % 4) and the
// next of both tiles.
template <typename T>
__device__ inline void ScoreTiles(const T* queries, const T* keys, const float* weights, int heads,
                                  int dim, float (&scores)[2][2]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int matrix = lane / 8;
  const auto row = static_cast<int>(PaddedRow(dim));
  const T* const q = queries + (matrix % 2 * 8 + lane % 8) * row + matrix / 2 * kVector;
  const T* const k = keys + (matrix / 2 * 8 + lane % 8) * row + matrix % 2 * kVector;
  for (int head = 0; head < heads; head += 16) {
    float products[2][4] = {};
    for (int d = 0; d < dim; d += 16) {
      uint32_t a[4];
      uint32_t b[4];
      LoadMatrices(a, q + head * row + d);
      LoadMatrices(b, k + d);
      Mma<T>(products[0], a, b[0], b[1]);
      Mma<T>(products[1], a, b[2], b[3]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int of_lane = head + lane / 4 + 8 * half;
      const float weight = of_lane < heads ? weights[of_lane] : 0.0f;
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          scores[tile][j] += weight * fmaxf(products[tile][2 * half + j], 0.0f);
        }
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int distance = 4; distance < kWarp; distance *= 2) {
        scores[tile][j] += __shfl_xor_sync(kAllLanes, scores[tile][j], distance);
      }
    }
  }
}

// Block (x, y): every gridDim.x-th group of keys of row y.
template <typename T>
__global__ void __launch_bounds__(kScoreThreads)
    ScoreKeysKernel(const __grid_constant__ ScoreArgs args) {
  WaitForPrevious();
  const int64_t row = blockIdx.y;
  const int length = args.a.lengths[row];
  if (length <= args.a.num_chosen) return;  // all of them are chosen
  const auto heads = static_cast<int>(args.a.heads);
  const auto dim = static_cast<int>(args.index.head_dim);
  T* const queries = static_cast<T*>(DynamicShared());
  T* const keys = queries + PaddedHeads(heads) * PaddedRow(dim);
  const T* const q = static_cast<const T*>(args.a.queries) + row * heads * dim;
  const float* const weights = args.a.weights + row * heads;
  CopyToShared(queries, static_cast<int>(PaddedHeads(heads)), dim,
               [&](int head) { return head < heads ? q + head * dim : nullptr; });
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float* const out = args.a.scores + row * args.ld_scores;
  for (int first = static_cast<int>(blockIdx.x) * kGroupKeys; first < length;
       first += static_cast<int>(gridDim.x) * kGroupKeys) {
    CopyToShared(keys, kGroupKeys, dim, [&](int key) -> const T* {
      const int position = first + key;
      if (position >= length) return nullptr;
      const int64_t slot = PageOf(args, row, position) * kKvPageSize + position % kKvPageSize;
      return static_cast<const T*>(args.index.k) + slot * dim;
    });
    CommitCopies();
    WaitForCopies<0>();
    __syncthreads();
    float scores[2][2] = {};
    ScoreTiles<T>(queries, keys + warp * kWarpKeys * PaddedRow(dim), weights, heads, dim, scores);
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int position = first + warp * kWarpKeys + 8 * tile + lane * 2 + j;
        if (lane < 4 && position < length) out[position] = scores[tile][j];
      }
    }
    __syncthreads();  // shared memory goes to the next keys
  }
}

// The same in float32, a warp per key.
__global__ void __launch_bounds__(kScoreThreads)
    FloatScoreKeysKernel(const __grid_constant__ ScoreArgs args) {
  WaitForPrevious();
  const int64_t row = blockIdx.y;
  const int length = args.a.lengths[row];
  if (length <= args.a.num_chosen) return;
  const auto heads = static_cast<int>(args.a.heads);
  const auto dim = static_cast<int>(args.index.head_dim);
  const float* const q = static_cast<const float*>(args.a.queries) + row * heads * dim;
  const float* const weights = args.a.weights + row * heads;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int position = static_cast<int>(blockIdx.x) * kScoreWarps + warp; position < length;
       position += static_cast<int>(gridDim.x) * kScoreWarps) {
    const int64_t slot = PageOf(args, row, position) * kKvPageSize + position % kKvPageSize;
    const float* const key = static_cast<const float*>(args.index.k) + slot * dim;
    float score = 0.0f;
    for (int head = 0; head < heads; ++head) {
      float sum = 0.0f;
      for (int i = lane; i < dim; i += kWarp) sum += key[i] * q[head * dim + i];
      score += weights[head] * fmaxf(ReduceWarp(sum, Plus()), 0.0f);
    }
    if (lane == 0) args.a.scores[row * args.ld_scores + position] = score;
  }
}

// ---- The best ----

// What is not a number is the largest. No score is a negative zero: its sum begins with a positive
// one.
__device__ inline uint32_t ScoreBits(float score) {
  return score == score ? OrderedBits(score) : 0xffffffffu;
}

// Writes the positions [0, count) themselves.
__device__ inline void ChooseAll(int count, int32_t* chosen) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kSampleThreads) chosen[i] = i;
}

__device__ inline void ChooseBest(const float* scores, int length, int num_chosen, int32_t* chosen,
                                  SelectShared& shared) {
  const auto wanted = static_cast<uint64_t>(num_chosen);
  const Selected least = SelectKey(length, 0, wanted, shared, [&](int64_t i, uint32_t* key) {
    *key = ScoreBits(scores[i]);
    return uint64_t{1};
  });
  const uint64_t num_equal = wanted - least.above;
  // Of the positions so far: those of larger scores in the upper half, of equal ones in the lower.
  uint64_t before = 0;
#pragma unroll 1
  for (int first = 0; first < length; first += kSampleThreads) {
    const int position = first + static_cast<int>(threadIdx.x);
    const uint32_t key = position < length ? ScoreBits(scores[position]) : 0;
    const bool is_larger = position < length && key > least.key;
    const bool is_equal = position < length && key == least.key;
    const uint64_t own = is_larger ? uint64_t{1} << 32 : is_equal ? 1 : 0;
    uint64_t all = 0;
    const uint64_t at = before + SumOfThreadsBefore(own, &all, shared);
    const uint64_t larger = at >> 32;
    const uint64_t equal = at & 0xffffffffu;
    if (is_larger || (is_equal && equal < num_equal)) {
      chosen[larger + (equal < num_equal ? equal : num_equal)] = position;
    }
    before += all;
  }
}

__global__ void __launch_bounds__(kSampleThreads)
    ChooseKeysKernel(const __grid_constant__ ScoreArgs args) {
  WaitForPrevious();
  __shared__ SelectShared shared;
  const int64_t row = blockIdx.x;
  const auto num_chosen = static_cast<int>(args.a.num_chosen);
  const int length = args.a.lengths[row];
  int32_t* const chosen = args.a.chosen + row * num_chosen;
  if (threadIdx.x == 0) args.a.counts[row] = min(length, num_chosen);
  if (length <= num_chosen) return ChooseAll(length, chosen);
  ChooseBest(args.a.scores + row * args.ld_scores, length, num_chosen, chosen, shared);
}

// ---- Launches ----

void CheckIndex(const KvPages& index, DType dtype, int64_t heads) {
  MLC_CHECK(index.kv_heads == 1 && index.v == nullptr && index.format == KvFormatOf(dtype));
  MLC_CHECK(index.head_dim % kVector == 0 && index.head_dim <= kMaxIndexDim) << index.head_dim;
  MLC_CHECK(heads > 0 && heads <= kMaxIndexHeads) << heads;
}

void LaunchScores(const ScoreArgs& args, Stream stream) {
  WithActivationType(args.a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const auto blocks = [&](int64_t keys) {  // of a row
      const int64_t groups = (args.a.max_length + keys - 1) / keys;
      const int64_t fit = int64_t{4} * NumMultiprocessors() / args.a.m;
      return std::min(groups, std::max<int64_t>(fit, 1));
    };
    const auto m = static_cast<unsigned>(args.a.m);
    if constexpr (sizeof(T) == 4) {
      const dim3 grid(static_cast<unsigned>(blocks(kScoreWarps)), m);
      Launch(FloatScoreKeysKernel, {.grid = grid, .threads = kScoreThreads}, stream, args);
    } else {
      const int64_t rows = PaddedHeads(args.a.heads) + kGroupKeys;
      const LaunchShape shape{
          .grid = dim3(static_cast<unsigned>(blocks(kGroupKeys)), m),
          .threads = kScoreThreads,
          .shared_bytes = static_cast<size_t>(rows * PaddedRow(args.index.head_dim)) * sizeof(T)};
      Launch(ScoreKeysKernel<T>, shape, stream, args);
    }
  });
}
static_assert((kMaxIndexHeads + kGroupKeys) * (kMaxIndexDim + kPadding) * 2 <= kMostSharedBytes);

}  // namespace key_choice_cu

KvPages IndexPages(DType dtype, int64_t head_dim, int64_t num_pages, void* k) {
  return {.format = KvFormatOf(dtype),
          .kv_heads = 1,
          .head_dim = head_dim,
          .num_pages = num_pages,
          .k = k};
}

void WriteIndex(const KvPages& index, const WriteIndexArgs& args, Stream stream) {
  CheckIndex(index, args.dtype, args.heads);
  MLC_CHECK(args.rotary_dim % 2 == 0 && args.rotary_dim <= index.head_dim) << args.rotary_dim;
  MLC_CHECK(args.norm_weight != nullptr && args.norm_bias != nullptr);
  if (args.m == 0) return;
  const int64_t units = args.heads + 1;
  const dim3 grid(static_cast<unsigned>(args.m),
                  static_cast<unsigned>((units + kIndexUnits - 1) / kIndexUnits));
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    Launch(WriteIndexKernel<T>, {.grid = grid, .threads = kIndexThreads}, stream,
           WriteIndexKernelArgs{index, args});
  });
}

int64_t ScoreRow(int64_t max_length) { return (max_length + 15) / 16 * 16; }

void ChooseKeys(const KvPages& index, const ChooseKeysArgs& args, Stream stream) {
  CheckIndex(index, args.dtype, args.heads);
  MLC_CHECK(args.num_chosen > 0 && args.scores != nullptr);
  for (int64_t first = 0; first < args.m; first += kChosenAtOnce) {
    ScoreArgs part{index, args, ScoreRow(args.max_length)};
    const int64_t size = args.heads * index.head_dim;
    part.a.queries = static_cast<const std::byte*>(args.queries) +
                     first * size * static_cast<int64_t>(DTypeSize(args.dtype));
    part.a.weights += first * args.heads;
    part.a.lengths += first;
    if (args.tables != nullptr) {
      part.a.tables += first;
    } else {
      part.a.block_tables += first * args.ld_block_tables;
    }
    part.a.chosen += first * args.num_chosen;
    part.a.counts += first;
    part.a.m = std::min(kChosenAtOnce, args.m - first);
    LaunchScores(part, stream);
    Launch(ChooseKeysKernel,
           {.grid = dim3(static_cast<unsigned>(part.a.m)), .threads = kSampleThreads}, stream,
           part);
  }
}

}  // namespace mlc_native::kernels::cuda
