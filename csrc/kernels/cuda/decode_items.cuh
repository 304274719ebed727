// The work items of DecodeAttention: an item is a split of a row's keys with one kv head and up to
// kMaxItemHeads of the query heads that read it. The splits of a row depend only on its own length.
// ListSplits (decode_splits.cu) writes the splits of all rows once for all layers with the same
// window; a block finds its item there by one load.
#pragma once

#include <algorithm>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/numbers.cuh"

namespace mlc_native::kernels::cuda {

inline constexpr int kMaxItemHeads = 8;
// Keys. Short splits let a single row have more blocks, and cost batches more parts and barriers.
// A row of at most two of the shortest has one split, because adding parts takes longer.
inline constexpr int kMinSplit = 128;
inline constexpr int kMaxSplit = 512;
// More keys are divided into splits of twice kMinSplit at least, and into kTargetSplits of them
// unless those were longer than kMaxSplit.
inline constexpr int kShortRow = 1024;
inline constexpr int kTargetSplits = 24;

struct alignas(16) DecodeSplit {
  int32_t row;
  int32_t table;       // of block_tables
  int32_t begin;       // position of the first key
  int32_t count;       // keys
  int32_t skipped;     // of them outside the window
  int32_t of_row;      // index among the splits of the row
  int32_t num_splits;  // of the row
  int32_t position;    // of the row
};

// In device memory; the splits of a row follow one another. There is room for `capacity` of them,
// and it is at least 1.
struct DecodeSplits {
  int32_t* size;
  int32_t* first_of_row;  // [rows + 1], of at most kMaxDecodeRows
  DecodeSplit* splits;
  int capacity;
};

// What lies in front of the splits.
inline constexpr int64_t kSplitsHeadBytes = sizeof(DecodeSplit) + kMaxDecodeRows * sizeof(int32_t);
static_assert(kSplitsHeadBytes % sizeof(DecodeSplit) == 0);

inline DecodeSplits SplitsOf(const DecodeRows& rows) {
  auto* const size = static_cast<int32_t*>(rows.splits);
  return {
      .size = size,
      .first_of_row = size + 1,
      .splits = reinterpret_cast<DecodeSplit*>(static_cast<char*>(rows.splits) + kSplitsHeadBytes),
      .capacity = static_cast<int>(rows.max_splits)};
}

struct DecodeWorkspace {
  int32_t* queue;     // [2]: items that blocks have taken, and blocks that take no more
  int32_t* num_done;  // [kMaxDecodeRows, q_heads]: splits of an item's row and first head
  float2* softmax;    // [splits, q_heads]: maximum (base 2) and sum
  float* parts;       // [splits, q_heads, head_dim]
};

// Divides without a division: exact for what is below 2^32 / divisor.
struct DecodeDivisor {
  __device__ int Quotient(int x) const {
    return static_cast<int>(static_cast<uint64_t>(x) * multiplier >> 32);
  }
  int divisor;
  uint64_t multiplier;
};
inline DecodeDivisor DivisorOf(int divisor) {
  return {divisor, ((uint64_t{1} << 32) + divisor - 1) / divisor};
}

struct DecodeKernelArgs {
  KvPages kv;
  AttentionArgs a;
  DecodeSplits splits;
  DecodeWorkspace workspace;
  int group;                      // query heads of a kv head
  DecodeDivisor pieces;           // of at most kMaxItemHeads query heads, of a group
  DecodeDivisor items_per_split;  // of all kv heads
};

inline constexpr int kQueueSize = 4;  // with what aligns it

inline size_t AlignDecodeBytes(size_t bytes) { return (bytes + 15) / 16 * 16; }

// Calls for layers with other numbers of heads share the memory, and its first part stays zero.
inline DecodeWorkspace WorkspaceOf(const DecodeRows& rows, int64_t heads_of_call) {
  const int64_t q_heads = std::max(rows.most_heads, heads_of_call);
  auto* bytes = static_cast<char*>(rows.workspace);
  DecodeWorkspace workspace;
  workspace.queue = reinterpret_cast<int32_t*>(bytes);
  workspace.num_done = workspace.queue + kQueueSize;
  bytes += AlignDecodeBytes(ZeroedDecodeBytes(q_heads));
  workspace.softmax = reinterpret_cast<float2*>(bytes);
  bytes += AlignDecodeBytes(static_cast<size_t>(rows.max_splits * q_heads) * sizeof(float2));
  workspace.parts = reinterpret_cast<float*>(bytes);
  return workspace;
}

inline DecodeKernelArgs DecodeArgsOf(const KvPages& kv, const AttentionArgs& args,
                                     const DecodeRows& rows) {
  const auto group = static_cast<int>(args.q_heads / kv.kv_heads);
  const int pieces = (group + kMaxItemHeads - 1) / kMaxItemHeads;
  const int items = static_cast<int>(kv.kv_heads) * pieces;
  MLC_CHECK(rows.max_splits * items < (int64_t{1} << 32) / items) << rows.max_splits;
  return {.kv = kv,
          .a = args,
          .splits = SplitsOf(rows),
          .workspace = WorkspaceOf(rows, args.q_heads),
          .group = group,
          .pieces = DivisorOf(pieces),
          .items_per_split = DivisorOf(items)};
}

struct Item {
  DecodeSplit split;
  int split_index;  // of all rows
  int kv_head;
  int first_head;  // query head
  int num_heads;
};

__device__ inline int SplitIndexAt(const DecodeKernelArgs& args, int index) {
  return args.items_per_split.Quotient(index);
}
__device__ inline int KvHeadAt(const DecodeKernelArgs& args, int index) {
  const int of_split = index - SplitIndexAt(args, index) * args.items_per_split.divisor;
  return args.pieces.Quotient(of_split);
}

// The item of an index. `split`: splits[SplitIndexAt(...)].
__device__ inline Item ItemAt(const DecodeKernelArgs& args, int index, const DecodeSplit& split) {
  Item item;
  item.split = split;
  item.split_index = SplitIndexAt(args, index);
  const int of_split = index - item.split_index * args.items_per_split.divisor;
  item.kv_head = args.pieces.Quotient(of_split);
  const int first = (of_split - item.kv_head * args.pieces.divisor) * kMaxItemHeads;
  item.first_head = item.kv_head * args.group + first;
  item.num_heads = min(args.group - first, kMaxItemHeads);
  return item;
}

}  // namespace mlc_native::kernels::cuda
