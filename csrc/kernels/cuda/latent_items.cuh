// The work items of attention to latents and to wide heads (latent_worker.cuh): an item is up to 16
// or 32 rows, tokens times query heads that read the same keys, of a split of a single row's keys
// or of a tile of a prompt.
#pragma once

#include "kernels/cuda/latent_worker.cuh"

namespace mlc_native::kernels::cuda {

struct LatentArgs {
  KvPages kv;
  AttentionArgs a;
  const PrefillTile* tiles;  // of prompts; null: single rows
  int64_t num_tiles;
  DecodeSplits splits;
  float2* softmax;       // [splits, q_heads]: maximum (base 2) and sum
  float* parts;          // [splits, q_heads, value_dim]
  int64_t value_dim;     // KvPages::value_dim
  DecodeDivisor heads;   // of a token and a KV head
  DecodeDivisor pieces;  // of a split or a tile: some of the tokens times the heads
  DecodeDivisor items;   // the pieces of all KV heads
};

// A piece of a split or a tile, which it has an index among.
struct LatentItem {
  __device__ static LatentItem Of(const LatentArgs& args, int number) {
    const int index = args.items.Quotient(number);
    const int of_index = number - index * args.items.divisor;
    const int kv_head = args.pieces.Quotient(of_index);
    return {index, kv_head, of_index - kv_head * args.pieces.divisor};
  }
  // Of latents, which are one KV head.
  __device__ static LatentItem OfLatents(const LatentArgs& args, int number) {
    const int index = args.pieces.Quotient(number);
    return {index, 0, number - index * args.pieces.divisor};
  }

  int index;
  int kv_head;
  int piece;
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
      return {.to = out + head * args.value_dim, .factor = 1.0f / softmax.y};
    }
    const int64_t part = index * args.a.q_heads + head;
    if (is_first) args.softmax[part] = softmax;
    return {.to = args.parts + part * args.value_dim, .is_part = true};
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
  const int num_items =
      (is_prompt ? static_cast<int>(args.num_tiles) : *args.splits.size) * args.items.divisor;
  const auto tokens_of = [&](int index) {
    return is_prompt ? LatentTokens::Of(args.tiles[index])
                     : LatentTokens::Of(args.splits.splits[index]);
  };
  for (int i = static_cast<int>(blockIdx.x); i < num_items; i += static_cast<int>(gridDim.x)) {
    const LatentItem item =
        Shape::kValuesApart ? LatentItem::Of(args, i) : LatentItem::OfLatents(args, i);
    const LatentTokens tokens = tokens_of(item.index);
    // Rows of the block are some of the tokens times the heads.
    const int first = item.piece * Shape::kRows;
    const int end = tokens.num_tokens * args.heads.divisor;
    if (first >= end) continue;
    const auto token_of = [&](int row) { return args.heads.Quotient(first + row); };
    const auto head_of = [&](int row) {
      const int of_token = first + row - token_of(row) * args.heads.divisor;
      return Shape::kValuesApart ? item.kv_head * args.heads.divisor + of_token : of_token;
    };
    const int last = min(Shape::kRows, end - first) - 1;
    LatentWorker<T, Kv, Shape, Rules>(args.kv, args.a.scale, DynamicShared(), item.kv_head)
        .Run(
            {args.a.block_tables + tokens.table * args.a.ld_block_tables, tokens.begin,
             tokens.position + token_of(last) + 1,
             args.a.chosen == nullptr ? nullptr : args.a.chosen + tokens.row * args.a.ld_chosen},
            [&](int row) {
              return row > last ? nullptr
                                : static_cast<const T*>(args.a.q) +
                                      (tokens.row + token_of(row)) * args.a.ldq +
                                      head_of(row) * args.kv.head_dim;
            },
            [&](int row) { return row > last ? 0 : tokens.position + token_of(row) + 1; },
            [&](int row, SoftmaxOfHead softmax, bool is_first) -> LatentPlace<T> {
              if (row > last) return {};
              const LatentTokens again = tokens_of(item.index);  // which costs no registers so far
              return LatentPlace<T>::Of(args, again.num_splits, item.index,
                                        again.row + token_of(row), head_of(row), softmax, is_first);
            });
  }
}

}  // namespace mlc_native::kernels::cuda
