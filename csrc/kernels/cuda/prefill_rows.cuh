// PrefillRows: what a warp of prefill attention knows of its rows, in registers: their scores for
// kPrefillKeys keys, which become weights (online softmax in base 2), and the sums of values so
// far. Its owner computes the products, in the layout of Mma. Bits do not depend on how many rows a
// warp has. One warp.
#pragma once

#include <climits>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {

struct PrefillArgs {
  KvPages kv;
  AttentionArgs a;
  const PrefillTile* tiles;
  int group;  // query heads of a kv head
  // Of a.window, whichever it is; the other one ends nowhere.
  int window;
  int chunk;
};
inline PrefillArgs PrefillArgsOf(const KvPages& kv, const AttentionArgs& args,
                                 const PrefillTile* tiles) {
  constexpr int64_t kEndless = INT_MAX;
  const auto size = static_cast<int>(args.window.size > 0 ? args.window.size : kEndless);
  return {.kv = kv,
          .a = args,
          .tiles = tiles,
          .group = static_cast<int>(args.q_heads / kv.kv_heads),
          .window = args.window.is_chunk ? INT_MAX : size,
          .chunk = args.window.is_chunk ? size : INT_MAX};
}

// The first key that the first token of a tile attends to.
__device__ inline int FirstSeenOf(const PrefillArgs& args, const PrefillTile& tile) {
  const int position = tile.first_position;
  return max(position - args.window + 1, position - position % args.chunk);
}

// The tokens of a tile: the position behind them, and the last key that they see as far as their
// window goes. In shared memory, because registers are full, and so is TileKeys.
struct TileTokens {
  int end;
  int last_key;

  __device__ static TileTokens Of(const PrefillTile& tile) {
    return {.end = tile.first_position + tile.num_rows, .last_key = tile.last_key};
  }

  // The last key that a row sees.
  __device__ int LastOf(const PrefillArgs& args, int position) const {
    return last_key - position < args.window ? max(position, last_key) : position + args.window - 1;
  }
};

// The keys that any row of a tile sees.
struct alignas(16) TileKeys {
  int first;
  int end;
  int first_position;
  int table;

  __device__ static TileKeys Of(const PrefillArgs& args, const PrefillTile& tile) {
    const TileTokens tokens = TileTokens::Of(tile);
    return {.first = FirstSeenOf(args, tile),
            .end = tokens.LastOf(args, tokens.end - 1) + 1,
            .first_position = tile.first_position,
            .table = tile.table};
  }

  // The first key that a row of the tile sees. A tile has at most as many tokens as a chunk, so it
  // crosses one boundary between chunks at most.
  __device__ int FirstOf(const PrefillArgs& args, int position) const {
    const int begin = position - first >= args.chunk ? first + args.chunk : first;
    return max(position - args.window + 1, begin);
  }
};

// What tests replace in order to see that it matters.
struct PrefillRowRules {
  // Whether a row of a tile, which sees keys from `first_seen` (the last row) up to `last_seen`
  // (the first one), does not see one of `num_keys` keys.
  __device__ static bool HasUnseen(int key, int num_keys, int first_seen, int last_seen) {
    return key < first_seen || key + num_keys > last_seen + 1;
  }
  // Whether a row of the warp has another maximum than before: else its sums keep their scale.
  __device__ static bool HasOtherMaximum(bool of_lane) {
    return __ballot_sync(kAllLanes, of_lane) != 0;
  }
  // The row of a warp to which elements 2 `half` and the next of its products belong.
  __device__ static int RowOfWarp(int lane, int tile, int half) {
    return 16 * tile + lane / 4 + 8 * half;
  }
};

// kTilesOfRows times 16 rows of kHeadDim elements.
template <typename T, int kHeadDim, int kTilesOfRows, typename Rules>
class PrefillRows {
 public:
  static constexpr int kRowTiles = kTilesOfRows;
  static constexpr int kKeys = static_cast<int>(kPrefillKeys);
  static constexpr int kKeyTiles = kKeys / 8;  // columns of scores, 8 at a time
  static constexpr int kChunks = kHeadDim / kVector;
  using Factors = float[kRowTiles][2];

  // `first_row`: of the warp, in the tile, whose keys are `keys`.
  __device__ PrefillRows(const PrefillArgs& args, const TileKeys& keys, const TileTokens& tokens,
                         int kv_head, int first_row)
      : args_(args),
        keys_(keys),
        tokens_(tokens),
        kv_head_(kv_head),
        first_row_(first_row),
        lane_(static_cast<int>(threadIdx.x % kWarp)),
        scale_(kLog2E * (Caps() ? 1.0f : args.a.scale)) {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) max_[tile][half] = -INFINITY;
    }
  }

  // The owner's products add to them.
  float scores[kRowTiles][kKeyTiles][4];  // of keys 8 j ..; then weights
  float sums[kRowTiles][kChunks][4] = {};

  // The scores become weights of the keys `key`... Returns whether the sums are to be multiplied by
  // the factors.
  __device__ bool Weigh(int key, Factors& factors) {
    if (Caps()) CapScores();
    const TileKeys keys = keys_;
    const TileTokens tokens = tokens_;
    const int first_seen = keys.FirstOf(args_, tokens.end - 1);
    const int last_seen = tokens.LastOf(args_, keys.first_position);
    if (Rules::HasUnseen(key, kKeys, first_seen, last_seen)) HideUnseen(key);
    bool has_other_maximum = false;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        factors[tile][half] = WeighKeys(tile, half);
        has_other_maximum |= factors[tile][half] != 1.0f;
      }
    }
    return Rules::HasOtherMaximum(has_other_maximum);
  }

  __device__ void ScaleSums(const Factors& factors) {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[tile][chunk][i] *= factors[tile][i / 2];
      }
    }
  }

  // The weights of 16 keys, for a product.
  __device__ void PackWeights(int tile, int step, uint32_t (&weights)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float (&score)[4] = scores[tile][2 * step + i / 2];
      weights[i] = Pack<T>(score[i % 2 * 2], score[i % 2 * 2 + 1]);
    }
  }

  __device__ void StoreOutput() const {
    const int row_begin = args_.tiles[blockIdx.x].row_begin;
    const int64_t dim = args_.kv.head_dim;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float total = ReduceWarp<4>(total_[tile][half], Plus());
        if (Position(tile, half) < 0) continue;
        const int row = first_row_ + Rules::RowOfWarp(lane_, tile, half);
        const float scale = 1.0f / (total + Sink(row, max_[tile][half]));
        T* out = static_cast<T*>(args_.a.out) + (row_begin + row / args_.group) * args_.a.ldo +
                 (kv_head_ * args_.group + row % args_.group) * dim + lane_ % 4 * 2;
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
          if (chunk * kVector >= args_.kv.head_dim) break;
          const float (&sum)[4] = sums[tile][chunk];
          *reinterpret_cast<uint32_t*>(out + chunk * kVector) =
              Pack<T>(sum[2 * half] * scale, sum[2 * half + 1] * scale);
        }
      }
    }
  }

 private:
  // Scores, or they are multiplied by a scale that is not positive.
  __device__ bool Caps() const { return args_.a.soft_cap > 0 || args_.a.scale <= 0; }

  // Returns what the sums so far are to be multiplied by.
  __device__ float WeighKeys(int tile, int half) {
    float highest = -INFINITY;
#pragma unroll
    for (int j = 0; j < kKeyTiles; ++j) {
      const float (&score)[4] = scores[tile][j];
      highest = fmaxf(highest, fmaxf(score[2 * half], score[2 * half + 1]));
    }
    const float max = fmaxf(max_[tile][half], ReduceWarp<4>(highest, Max()) * scale_);
    const float base = max == -INFINITY ? 0.0f : max;  // no key of this row so far
    const float factor = Exp2(max_[tile][half] - base);
    max_[tile][half] = max;
    float total = 0.0f;
#pragma unroll
    for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = scores[tile][j][2 * half + i];
        score = Exp2(fmaf(score, scale_, -base));
        total += score;
      }
    }
    total_[tile][half] = total_[tile][half] * factor + total;
    return factor;
  }

  // The position of a row's token; below zero: the row is unused.
  __device__ int Position(int tile, int half) const {
    int row = first_row_ + Rules::RowOfWarp(lane_, tile, half);
    const int token = static_cast<int>(static_cast<unsigned>(row) / args_.group);
    const int position = keys_.first_position + token;
    return position < tokens_.end ? position : -1;
  }

  __device__ void HideUnseen(int key) {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int position = Position(tile, half);
        const int first = keys_.FirstOf(args_, position);
        const int column = key + lane_ % 4 * 2 - first;
        const int span = tokens_.LastOf(args_, position) - first;
#pragma unroll
        for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int at = column + 8 * j + i;
            if (at < 0 || at > span) scores[tile][j][2 * half + i] = -INFINITY;
          }
        }
      }
    }
  }

  __device__ void CapScores() {
    const float scale = args_.a.scale;
    const float cap = args_.a.soft_cap;
    const float factor = cap > 0 ? FastDivide(scale, cap) : scale;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          scores[tile][j][i] *= factor;
        }
      }
    }
    if (cap <= 0) return;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[tile][j][i] = cap * FastTanh(scores[tile][j][i]);
      }
    }
  }

  // What the sink of the row's head adds to a sum of weights in front of which 2^-max is left out.
  __device__ float Sink(int row, float max) const {
    if (args_.a.sinks == nullptr) return 0.0f;
    const int64_t head = kv_head_ * args_.group + row % args_.group;
    return Exp2(kLog2E * ToFloat(static_cast<const T*>(args_.a.sinks)[head]) - max);
  }

  const PrefillArgs& args_;
  const TileKeys& keys_;
  const TileTokens& tokens_;
  const int kv_head_;
  const int first_row_;
  const int lane_;
  const float scale_;  // of scores, to base 2; positive
  float max_[kRowTiles][2];
  float total_[kRowTiles][2] = {};  // of the lane's columns
};

}  // namespace mlc_native::kernels::cuda
