// GemvWorker: a block's part of a product with few rows, on tensor cores.
//
// A tile is kTileRows rows of the weight, in two halves: neighbours, or where pairs of columns
// become one (HasPairs) eight rows and the eight that are n / 2 behind them. A block takes one
// tile, or with kWalks every gridDim.x-th. Its warps take the steps of k in turn (a step is 128 k)
// and add their sums in a fixed order. The weights are the first operand of the tensor cores and
// the rows of x the second, eight at a time, so eight rows cost as much as one, and a row's sums
// are the same in every batch. Each lane loads up to 64 bytes of two rows (a step of 16 bits, four
// of 4 bits) before it computes what it has loaded before; where it walks, also those of its next
// tile. Where a product normalizes, x is the row that the block has normalized in shared memory,
// while its first weights were on their way.
#pragma once

#include <utility>

#include "kernels/cuda/gemv_formats.cuh"
#include "kernels/cuda/gemv_store.cuh"
#include "kernels/cuda/norm_row.cuh"

namespace mlc_native::kernels::cuda {

inline constexpr int kGemvWarps = 8;
inline constexpr int kGemvThreads = kGemvWarps * kWarp;

// Blocks of a multiprocessor that walk over tiles.
template <typename Format>
inline constexpr int kGemvWalkers = Format::kStepsAhead > 2 ? 3 : 2;

struct NoNorm {
  static constexpr bool kNormalizes = false;
};
// Of products that normalize. What tests replace in order to see that it matters.
struct NormOfRow {
  static constexpr bool kNormalizes = true;
  // Before warps read what others have normalized.
  __device__ static void AwaitRow() { __syncthreads(); }
};
inline constexpr int kNormVectors = static_cast<int>(kMaxNormGemvK) / (kGemvThreads * kVector);
static_assert(kGemvThreads == kNormThreads);

// kTiles: of eight rows of x. kHalves: 8 weight rows each. kGathers: rows of x may be chosen, and
// the kernel has waited for the one before it; else the worker does, when the loads of its
// first weights have been issued. Norm: NormOfRow where the product normalizes.
template <typename Format, int kTiles, int kHalves, bool kGathers = false, bool kWalks = false,
          typename Norm = NoNorm>
class GemvWorker {
 public:
  using T = typename Format::Element;
  using Row = typename Format::Row;
  static constexpr int kTileRows = 8 * kHalves;

  // With kGathers and `rows`, row i of y comes from row rows[i] of x.
  __device__ explicit GemvWorker(const GemvArgs& args, const int32_t* rows = nullptr)
      : args_(args),
        has_pairs_(kHalves == 2 && HasPairs(args)),
        half_rows_(has_pairs_ ? static_cast<int>(args.n) / 2 : 8),
        num_steps_(static_cast<int>((args.k + kGemvStep - 1) / kGemvStep)),
        line_(static_cast<int>(threadIdx.x) % kWarp / kRowLanes),
        lane_(static_cast<int>(threadIdx.x) % kRowLanes) {
    // Behind the last row of x there is the last one: its products are not stored.
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int row = min(8 * tile + line_, static_cast<int>(args.m) - 1);
      const int64_t from = kGathers && rows != nullptr ? rows[row] : row;
      if constexpr (Norm::kNormalizes) {
        x_[tile] = static_cast<const T*>(DynamicShared()) + lane_ * kVector;
      } else {
        x_[tile] = static_cast<const T*>(args.x) + from * args.ldx + lane_ * kVector;
      }
    }
  }

  // Tiles that a product has.
  __device__ __host__ static int64_t NumTiles(const GemvArgs& args) {
    const int64_t columns = Columns(args);  // divided by constants: others take 100 instructions
    if (kHalves == 2 && HasPairs(args)) return (columns + 7) / 8;
    return (columns + kTileRows - 1) / kTileRows;
  }

  // Of a tile: [warp, row of x, row of the weight].
  using Sums = float[kGemvWarps][kTiles * 8][kTileRows];

  __device__ void Run(Sums& shared)
    requires(!kWalks)
  {
    const auto tile = static_cast<int>(blockIdx.x);
    int step = static_cast<int>(threadIdx.x) / kWarp;
    const Rows rows = RowsOf(tile);
    Weights next[kAhead];
    LoadFirst(rows, step, next);
    while (step < num_steps_) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {  // so that each of `next` stays in its registers
        const Weights weights = next[i];
        LoadIfThere(rows, step + kAhead * kGemvWarps, num_steps_, &next[i]);
        Add(step, weights);
        step += kGemvWarps;
        if (kAhead > 1 && step >= num_steps_) break;
      }
    }
    AddUpWarps(tile, shared);
  }

  // Two tiles in turn have different shared memory: what a thread reads of a tile is written again
  // behind the barrier of the next one.
  __device__ void Run(Sums (&shared)[2])
    requires kWalks
  {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const auto num_tiles = static_cast<int>(NumTiles(args_));
    auto tile = static_cast<int>(blockIdx.x);
    Rows rows = RowsOf(tile);
    Weights next[kAhead];
    LoadFirst(rows, warp, next);
    if constexpr (kHoldsX) {
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) held_x_[b] = LoadX(0, min(warp, num_steps_ - 1), b);
    }
    for (int buffer = 0; tile < num_tiles; buffer ^= 1) {
      const int next_tile = tile + static_cast<int>(gridDim.x);
      for (int first = warp; first < num_steps_; first += kAhead * kGemvWarps) {
        // Behind the last steps of a tile, the first ones of the next tile are loaded.
        int ahead = first + kAhead * kGemvWarps;
        int num_ahead = num_steps_;
        if (ahead >= num_steps_) {
          rows = RowsOf(next_tile);
          ahead = warp;
          if (next_tile >= num_tiles) num_ahead = 0;
        }
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          const int step = first + i * kGemvWarps;
          const int then = ahead + i * kGemvWarps;
          if constexpr (kAhead == 1) {
            const Weights weights = next[i];
            LoadIfThere(rows, then, num_ahead, &next[i]);
            Add(step, weights);
          } else {  // without a copy of the weights, which takes registers
            if (step < num_steps_) Add(step, next[i]);
            LoadIfThere(rows, then, num_ahead, &next[i]);
          }
        }
      }
      AddUpWarps(tile, shared[buffer]);
      tile = next_tile;
    }
  }

 private:
  // With more rows the arithmetic hides the loads. A block that walks shares its multiprocessor
  // with more others, or has the next tile's x in registers.
  static constexpr int kMostAhead = kWalks ? 2 : kBlocks;
  static constexpr int kAhead = kTiles > 1                         ? 1
                                : Format::kStepsAhead < kMostAhead ? Format::kStepsAhead
                                                                   : kMostAhead;
  static_assert(kTiles == 1 || !kWalks);
  // Of the next step, unless it is in shared memory.
  static constexpr bool kHoldsX = kWalks && !Norm::kNormalizes;

  struct Weights {
    typename Format::Step halves[kHalves];
  };
  struct Rows {
    Row halves[kHalves];

    __device__ Weights Load(int step) const {
      Weights weights;
#pragma unroll
      for (int h = 0; h < kHalves; ++h) weights.halves[h] = halves[h].Load(step);
      return weights;
    }
  };

  template <int... halves>
  __device__ Rows MakeRows(int first_row, std::integer_sequence<int, halves...>) const {
    return {{Row(args_, first_row + half_rows_ * halves + line_, lane_)...}};
  }
  __device__ int FirstRow(int tile) const { return tile * (has_pairs_ ? 8 : kTileRows); }
  __device__ Rows RowsOf(int tile) const {
    return MakeRows(FirstRow(tile), std::make_integer_sequence<int, kHalves>());
  }

  // All lanes of a warp load, or none. What is behind the last step is not used.
  __device__ static void LoadIfThere(const Rows& rows, int step, int num_steps, Weights* weights) {
    if (step < num_steps) *weights = rows.Load(step);
  }

  // What stands in front of the wait.
  __device__ void LoadFirst(const Rows& rows, int step, Weights (&next)[kAhead]) const {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if constexpr (kAhead == 1 || kWalks) {
        // A branch would end in moves between registers, which would wait for the loads. What a
        // warp without a step loads is not used.
        next[i] = rows.Load(min(step + i * kGemvWarps, num_steps_ - 1));
      } else {
        LoadIfThere(rows, step + i * kGemvWarps, num_steps_, &next[i]);
      }
    }
    if constexpr (Norm::kNormalizes) {
      const Parameter<T, kNormVectors> weight(args_.norm.weight, args_.k);
      WaitForPrevious();
      __shared__ float sums[kGemvWarps];
      NormalizeRow<kGemvWarps>(static_cast<const float*>(args_.x), weight, args_.norm.weight_offset,
                               args_.norm.eps, args_.k, static_cast<T*>(DynamicShared()), sums);
      Norm::AwaitRow();
    } else if constexpr (!kGathers) {
      WaitForPrevious();
    }
  }

  // Zeros behind the last k, except where the weights are zeros there.
  __device__ Pairs LoadX(int tile, int step, int b) const {
    const int last = static_cast<int>(args_.k) - kVector - lane_ * kVector;
    const int at = step * static_cast<int>(kGemvStep) + b * kBlock;
    const auto* from = reinterpret_cast<const uint4*>(x_[tile] + min(at, last));
    if constexpr (Format::kPadsSteps) return PairsOf(*from);
    return at <= last ? PairsOf(*from) : Pairs{};
  }

  __device__ void Add(int step, const Weights& weights) {
    constexpr bool kScaled = Format::kGroupBlocks > 0;
    constexpr int kGroupBlocks = kScaled ? Format::kGroupBlocks : kBlocks;
#pragma unroll
    for (int group = 0; group < kBlocks / kGroupBlocks; ++group) {
      float sums[kTiles][4] = {};
#pragma unroll
      for (int i = 0; i < kGroupBlocks; ++i) {
        AddBlock(step, group * kGroupBlocks + i, weights, kScaled ? sums : sums_);
      }
      if constexpr (kScaled) AddScaled(group, weights, sums);
    }
  }

  __device__ void AddBlock(int step, int b, const Weights& weights, float (&sums)[kTiles][4]) {
    const Pairs low = Format::Block(weights.halves[0], b);
    Pairs high{};
    if constexpr (kHalves == 2) high = Format::Block(weights.halves[1], b);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const Pairs x = kHoldsX ? held_x_[b] : LoadX(tile, step, b);
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const uint32_t a[4] = {low.pair[i], high.pair[i], low.pair[i + 1], high.pair[i + 1]};
        Mma<T>(sums[tile], a, x.pair[i], x.pair[i + 1]);
      }
    }
    if constexpr (kHoldsX) {  // of the step behind this one
      const int next = step + kGemvWarps;
      held_x_[b] = LoadX(0, next < num_steps_ ? next : step % kGemvWarps, b);
    }
  }

  __device__ void AddScaled(int group, const Weights& weights, const float (&sums)[kTiles][4]) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const float scale = Format::Scale(weights.halves[h], group);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        cuda::AddScaled(&sums_[tile][2 * h], scale, sums[tile][2 * h]);
        cuda::AddScaled(&sums_[tile][2 * h + 1], scale, sums[tile][2 * h + 1]);
      }
    }
  }

  __device__ void AddUpWarps(int of_block, Sums& shared) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int first_row = FirstRow(of_block);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 2 * kHalves; ++i) {
        shared[warp][8 * tile + 2 * lane_ + i % 2][line_ + 8 * (i / 2)] = sums_[tile][i];
        sums_[tile][i] = 0.0f;
      }
    }
    __syncthreads();
    const auto sum = [&](int row, int of_tile) {
      float all = 0.0f;
      for (int w = 0; w < kGemvWarps; ++w) all += shared[w][row][of_tile];
      return all;
    };
    const int width = has_pairs_ ? 8 : kTileRows;
    const auto columns = static_cast<int>(Columns(args_));
    for (int i = static_cast<int>(threadIdx.x); i < kTiles * 8 * width; i += kGemvThreads) {
      const int row = has_pairs_ ? i / 8 : i / kTileRows;
      const int of_tile = has_pairs_ ? i % 8 : i % kTileRows;
      const int column = first_row + of_tile;
      if (row >= args_.m || column >= columns) continue;
      const float own = sum(row, of_tile);
      if (kHalves == 2 && args_.activates) {
        const float other = has_pairs_ ? sum(row, of_tile + 8) : 0.0f;
        StoreActivated<T>(args_, row, column, own, other);
      } else {
        StoreY<T>(args_, row, column, own);
      }
    }
  }

  const GemvArgs& args_;
  const bool has_pairs_;
  const int half_rows_;  // from the first half of the rows to the second
  const int num_steps_;
  const int line_;                       // row of the weight, and of x, within eight
  const int lane_;                       // of a row
  const T* x_[kTiles];                   // the lane's part of its rows of x
  Pairs held_x_[kHoldsX ? kBlocks : 1];  // the lane's x of the next step
  float sums_[kTiles][4] = {};
};

}  // namespace mlc_native::kernels::cuda
