// ListSplits: one block. Each thread counts the splits of several rows, a scan over the threads
// follows, and then the threads take the splits of all rows in turn and write them.
//
// Bytes: 32 for each split, and 4 for each row.
#include "kernels/cuda/decode_items.cuh"

namespace mlc_native::kernels::cuda {
inline namespace decode_splits_cu {

constexpr int kListThreads = 512;

// Keys [begin, end) of a row at a position, begin at a page's start; those below `visible` are
// outside the window.
struct KeyRange {
  int begin;
  int visible;
  int end;
  int position;
};

__device__ inline KeyRange KeysOf(const DecodeRows& rows, int row, AttentionWindow window) {
  const int length = rows.lengths[row];
  if (length == 0) return {};
  const int position = rows.positions == nullptr ? length - 1 : rows.positions[row];
  const int visible = static_cast<int>(window.First(position));
  const int end = static_cast<int>(window.Last(position, length - 1)) + 1;
  return {visible / kKvPageSize * kKvPageSize, visible, end, position};
}

__device__ inline int SplitKeys(int num_keys) {
  const bool has_short = num_keys > 2 * kMinSplit && num_keys <= kShortRow;
  int split = has_short ? kMinSplit : 2 * kMinSplit;
  while (split < kMaxSplit && split * kTargetSplits < num_keys) split *= 2;
  return split;
}

__device__ inline int NumSplits(const KeyRange& keys) {
  const int num_keys = keys.end - keys.begin;
  const int split = SplitKeys(num_keys);
  return (num_keys + split - 1) / split;
}

struct ListSplitsArgs {
  DecodeRows rows;
  AttentionWindow window;
  DecodeSplits to;
};

// Sets first_split[i] to the number of splits of the rows before i, and first_split[m] to that of
// all rows.
__device__ inline void CountSplits(const ListSplitsArgs& args, int* first_split) {
  __shared__ int warp_sums[kListThreads / kWarp];
  const int m = static_cast<int>(args.rows.m);
  const int per_thread = (m + kListThreads - 1) / kListThreads;
  const int begin = min(static_cast<int>(threadIdx.x) * per_thread, m);
  const int end = min(begin + per_thread, m);
  int sum = 0;
  for (int i = begin; i < end; ++i) {
    first_split[i] = NumSplits(KeysOf(args.rows, i, args.window));
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
  if (threadIdx.x == kListThreads - 1) first_split[m] = before;
  __syncthreads();
}

// The row of a split: the last one that starts at or before it.
__device__ inline int RowOf(const int* first_split, int m, int split) {
  int low = 0;
  int high = m;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (first_split[middle] <= split ? low : high) = middle;
  }
  return low;
}

__global__ void __launch_bounds__(kListThreads)
    ListSplitsKernel(const __grid_constant__ ListSplitsArgs args) {
  WaitForPrevious();
  __shared__ int first_split[kMaxDecodeRows + 1];
  CountSplits(args, first_split);
  const int m = static_cast<int>(args.rows.m);
  const int size = first_split[m];
  if (threadIdx.x == 0) *args.to.size = size;
  for (int i = static_cast<int>(threadIdx.x); i <= m; i += kListThreads) {
    args.to.first_of_row[i] = first_split[i];
  }
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kListThreads) {
    const int row = RowOf(first_split, m, i);
    const KeyRange keys = KeysOf(args.rows, row, args.window);
    const int split_keys = SplitKeys(keys.end - keys.begin);
    const int of_row = i - first_split[row];
    DecodeSplit split;
    split.row = row;
    split.table = args.rows.tables == nullptr ? row : args.rows.tables[row];
    split.begin = keys.begin + of_row * split_keys;
    split.count = min(split_keys, keys.end - split.begin);
    split.skipped = max(keys.visible - split.begin, 0);
    split.of_row = of_row;
    split.num_splits = first_split[row + 1] - first_split[row];
    split.position = keys.position;
    args.to.splits[i] = split;
  }
}

}  // namespace decode_splits_cu

// A row of fewer keys, in its window, may have more splits, because they grow with it. A window may
// begin within a page.
int64_t MaxDecodeSplits(int64_t length) {
  if (length == 0) return 0;
  const auto pieces = [keys = length + kKvPageSize - 1](int64_t of) {
    return (keys + of - 1) / of;
  };
  const int64_t of_short_row = min(pieces(kMinSplit), int64_t{kShortRow / kMinSplit});
  const int64_t of_long_row = min(pieces(2 * kMinSplit), int64_t{kTargetSplits});
  return max(max(of_short_row, of_long_row), pieces(kMaxSplit));
}

size_t DecodeSplitsBytes(int64_t max_splits) {
  return static_cast<size_t>(kSplitsHeadBytes) +
         static_cast<size_t>(max_splits) * sizeof(DecodeSplit);
}

void ListSplits(const DecodeRows& rows, AttentionWindow window, Stream stream) {
  MLC_CHECK(rows.m <= kMaxDecodeRows && rows.max_splits > 0) << rows.m;
  if (rows.m == 0) return;
  Launch(ListSplitsKernel, {.grid = dim3(1), .threads = kListThreads}, stream,
         ListSplitsArgs{.rows = rows, .window = window, .to = SplitsOf(rows)});
}

}  // namespace mlc_native::kernels::cuda
