// The work items of DecodeAttention. The splits of a row depend only on its own length; an item is
// a split with one kv head and up to kMaxItemHeads of the query heads that read it. Every block
// counts the splits of all rows itself, which takes a microsecond and needs no planning on the
// host.
#pragma once

#include "kernels/cuda/numbers.cuh"

namespace mlc_native::kernels::cuda {

inline constexpr int kDecodeThreads = 256;
inline constexpr int kMaxItemHeads = 8;
// Keys. Shorter ones cost more parts and barriers than they gain a single row.
inline constexpr int kMinSplit = 128;
inline constexpr int kMaxSplit = 512;
inline constexpr int kTargetSplits = 24;

// Keys [begin, end) of a row, begin at a page's start; those below `visible` are outside the
// window.
struct KeyRange {
  int begin;
  int visible;
  int end;
};

__device__ inline KeyRange KeysOf(int length, int64_t window) {
  const int visible = window > 0 && window < length ? length - static_cast<int>(window) : 0;
  return {visible / kKvPageSize * kKvPageSize, visible, length};
}

__device__ inline int SplitKeys(int num_keys) {
  int split = kMinSplit;
  while (split < kMaxSplit && split * kTargetSplits < num_keys) split *= 2;
  return split;
}

__device__ inline int NumSplits(int length, int64_t window) {
  const KeyRange keys = KeysOf(length, window);
  const int num_keys = keys.end - keys.begin;
  const int split = SplitKeys(num_keys);
  return (num_keys + split - 1) / split;
}

inline int64_t MaxSplits(int64_t max_length) {
  const int64_t max_keys = max_length + kKvPageSize;
  return max_keys <= kTargetSplits * kMaxSplit ? kTargetSplits
                                               : (max_keys + kMaxSplit - 1) / kMaxSplit;
}

struct DecodeWorkspace {
  int32_t* num_done;  // [kMaxDecodeRows, q_heads]: splits of an item's row and first head
  float2* softmax;    // [splits, q_heads]: maximum (base 2) and sum
  float* parts;       // [splits, q_heads, head_dim]
};

struct DecodeKernelArgs {
  KvPages kv;
  AttentionArgs a;
  DecodeRows rows;
  DecodeWorkspace workspace;
  int group;   // query heads of a kv head
  int pieces;  // of at most kMaxItemHeads query heads, of a group
};

struct Item {
  int row;
  int split;        // of the row
  int num_splits;   // of the row
  int split_index;  // of all
  int kv_head;
  int first_head;  // query head
  int num_heads;
};

// Sets first_split[i] to the number of splits of the rows before i, and first_split[m] to that of
// all rows. Each thread takes several rows, and a scan over the threads follows.
__device__ inline void CountSplits(const DecodeKernelArgs& args, int* first_split) {
  __shared__ int warp_sums[kDecodeThreads / kWarp];
  const int m = static_cast<int>(args.rows.m);
  const int per_thread = (m + kDecodeThreads - 1) / kDecodeThreads;
  const int begin = min(static_cast<int>(threadIdx.x) * per_thread, m);
  const int end = min(begin + per_thread, m);
  int sum = 0;
  for (int i = begin; i < end; ++i) {
    first_split[i] = NumSplits(args.rows.lengths[i], args.a.window);
    sum += first_split[i];
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int before = sum;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int other = __shfl_up_sync(kAllLanes, before, distance);
    if (lane >= distance) before += other;
  }
  if (lane == kWarp - 1) warp_sums[threadIdx.x / kWarp] = before;
  __syncthreads();
  before -= sum;
  for (int i = 0; i < static_cast<int>(threadIdx.x) / kWarp; ++i) before += warp_sums[i];
  for (int i = begin; i < end; ++i) {
    const int num_splits = first_split[i];
    first_split[i] = before;
    before += num_splits;
  }
  if (threadIdx.x == kDecodeThreads - 1) first_split[m] = before;
  __syncthreads();
}

__device__ inline Item FindItem(const DecodeKernelArgs& args, const int* first_split, int index) {
  const int items_per_split = static_cast<int>(args.kv.kv_heads) * args.pieces;
  Item item;
  item.split_index = index / items_per_split;
  int low = 0;  // the last row that starts at or before the split
  int high = static_cast<int>(args.rows.m);
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (first_split[middle] <= item.split_index ? low : high) = middle;
  }
  item.row = low;
  item.split = item.split_index - first_split[low];
  item.num_splits = first_split[low + 1] - first_split[low];
  item.kv_head = index % items_per_split / args.pieces;
  const int first = index % args.pieces * kMaxItemHeads;
  item.first_head = item.kv_head * args.group + first;
  item.num_heads = min(args.group - first, kMaxItemHeads);
  return item;
}

}  // namespace mlc_native::kernels::cuda
