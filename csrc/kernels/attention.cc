// Divides the attention of a mixed batch into blocks (sequence, kv head, rows, q heads) and assigns
// them to threads by cost. If there are few blocks, long contexts are also divided into segments of
// keys. The result does not depend on the blocks or on the assignment.
#include <algorithm>

#include "kernels/cpu/table.h"
#include "kernels/kernel_profile.h"
#include "kernels/kernels.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

constexpr int kAttention = static_cast<int>(KernelKind::kAttention);

// What a block has at most.
struct BlockSize {
  int64_t rows;
  int64_t q_heads;  // of a kv head

  // The q heads of one kv head load its keys and values once, so that they stay together.
  explicit BlockSize(int64_t group)
      : rows(std::max<int64_t>(1, kMaxBlockQueries / group)),
        q_heads(std::min(group, kMaxBlockQueries)) {}
  int64_t queries() const { return rows * q_heads; }
};

// Contexts are divided into segments if there are fewer blocks per thread than this.
constexpr int64_t kEnoughBlocksPerThread = 2;
// Segment states per thread that a wave can hold until they are folded. More states mean fewer
// waves and more memory. Twice the number of blocks lets a wave have at least two segments of each.
constexpr int64_t kStatesPerThread = 2 * kEnoughBlocksPerThread;

// Each part is a whole number of cache lines, so that threads share none.
struct Workspace {
  int64_t scratch_floats;  // per thread
  int64_t state_floats;
  float* scratch = nullptr;  // [threads]
  float* states = nullptr;   // [kStatesPerThread * threads]
  float* totals = nullptr;   // [kEnoughBlocksPerThread * threads], one per block

  Workspace(int64_t q_heads, int64_t kv_heads, int64_t head_dim) {
    const int64_t queries = BlockSize(q_heads / kv_heads).queries();
    scratch_floats = AttentionScratchFloats(queries, head_dim);
    state_floats = AttentionStateFloats(queries, head_dim);
  }
  int64_t Floats(int64_t threads) const {
    return threads * (scratch_floats + (kStatesPerThread + kEnoughBlocksPerThread) * state_floats);
  }
  void Place(void* base, int64_t threads) {
    scratch = static_cast<float*>(base);
    states = scratch + threads * scratch_floats;
    totals = states + threads * kStatesPerThread * state_floats;
  }
  float* Scratch(int thread) const { return scratch + thread * scratch_floats; }
};

int64_t LastKey(const AttentionArgs& args, const AttentionSequence& sequence, int64_t row) {
  return args.window.Last(sequence.first_position + row, sequence.last_key);
}

// The number of keys that the block's queries read, plus a constant for its set-up. Proportional to
// its time.
int64_t CostOf(const AttentionArgs& args, const AttentionBlock& block) {
  const int64_t rows = block.row_end - block.row_begin;
  const int64_t first = block.sequence->first_position;
  const int64_t keys = LastKey(args, *block.sequence, block.row_end - 1) + 1 -
                       args.window.First(first + block.row_begin);
  return (keys + kPageSize) * rows * block.num_heads;
}

// A cost that takes about 10 us: 256 keys of 4 q heads with a head_dim of 128, of which loading
// keys and values takes half.
int64_t MinCostPerPart(int64_t group, int64_t head_dim) {
  return std::max<int64_t>(1, int64_t{256} * 128 * 8 * group / (head_dim * (group + 4)));
}

// Calls visit(block, cost) for every block in a fixed order. The kv heads of a sequence are the
// outer loop, so that neighbouring blocks share pages.
template <typename F>
void ForBlocks(const KvPages& kv, const AttentionArgs& args, const BlockSize& size, F visit) {
  const int64_t group = args.q_heads / kv.kv_heads;
  for (int64_t i = 0; i < args.num_sequences; ++i) {
    const AttentionSequence& sequence = args.sequences[i];
    for (int64_t head = 0; head < kv.kv_heads; ++head) {
      for (int64_t row = 0; row < sequence.num_rows; row += size.rows) {
        const int64_t row_end = std::min(row + size.rows, sequence.num_rows);
        for (int64_t at = 0; at < group; at += size.q_heads) {
          const AttentionBlock block{.sequence = &sequence,
                                     .kv_head = head,
                                     .q_head = head * group + at,
                                     .num_heads = std::min(size.q_heads, group - at),
                                     .row_begin = row,
                                     .row_end = row_end};
          visit(block, CostOf(args, block));
        }
      }
    }
  }
}

struct SegmentRange {
  int64_t begin;
  int64_t end;
};
SegmentRange Segments(const AttentionArgs& args, const AttentionBlock& block) {
  const int64_t first = block.sequence->first_position + block.row_begin;
  const int64_t begin = args.window.First(first);
  const int64_t last = LastKey(args, *block.sequence, block.row_end - 1);
  return {begin / kSegmentTokens, last / kSegmentTokens + 1};
}

struct BatchSize {
  BlockSize block;
  int64_t cost = 0;
  int64_t blocks = 0;
  int64_t most_segments = 0;    // greatest number in one block
  int64_t largest_block = 0;    // cost
  int64_t largest_segment = 0;  // cost

  // Whether the contexts are divided.
  bool InSegments(int64_t threads) const {
    return threads > 1 && blocks < kEnoughBlocksPerThread * threads && most_segments > 1;
  }
};
BatchSize Measure(const KvPages& kv, const AttentionArgs& args, const BlockSize& block_size) {
  BatchSize size{.block = block_size};
  ForBlocks(kv, args, block_size, [&](const AttentionBlock& block, int64_t cost) {
    const SegmentRange segments = Segments(args, block);
    const int64_t queries = (block.row_end - block.row_begin) * block.num_heads;
    size.cost += cost;
    ++size.blocks;
    size.most_segments = std::max(size.most_segments, segments.end - segments.begin);
    size.largest_block = std::max(size.largest_block, cost);
    size.largest_segment = std::max(size.largest_segment, std::min(cost, queries * kSegmentTokens));
  });
  return size;
}

// Blocks get fewer q heads where one of them, or a segment of one, would take more than a thread's
// share of the time: what they load more than once is in a cache then.
BatchSize DivideBatch(const KvPages& kv, const AttentionArgs& args, int64_t threads) {
  BatchSize size = Measure(kv, args, BlockSize(args.q_heads / kv.kv_heads));
  while (size.block.q_heads > 1) {
    const int64_t largest = size.InSegments(threads) ? size.largest_segment : size.largest_block;
    if (largest * threads <= size.cost) break;
    BlockSize smaller = size.block;
    smaller.q_heads = (smaller.q_heads + 1) / 2;
    size = Measure(kv, args, smaller);
  }
  return size;
}

// Each thread visits all blocks and computes those whose middle lies in its share of the cost, each
// when the next one is known.
void AttendBlocks(const Cpu& cpu, const KvPages& kv, const AttentionArgs& args,
                  const Workspace& workspace, const BatchSize& size) {
  const auto attend = [&](int64_t begin, int64_t end, int thread) {
    int64_t done = 0;
    AttentionBlock last{};
    ForBlocks(kv, args, size.block, [&](AttentionBlock block, int64_t cost) {
      const int64_t middle = done + cost / 2;
      done += cost;
      if (middle < begin || middle >= end) return;
      block.scratch = workspace.Scratch(thread);
      if (last.sequence != nullptr) {
        last.next = &block;
        cpu.isa->attention(kv, args, last);
        block.prefetched = true;
      }
      last = block;
    });
    if (last.sequence != nullptr) cpu.isa->attention(kv, args, last);
  };
  RunLoop(cpu, kAttention, size.cost, attend,
          MinCostPerPart(args.q_heads / kv.kv_heads, kv.head_dim));
}

// Computes few blocks in waves of several segments of each. The segments of a wave are attended to
// in any order and then folded in the order of their keys.
struct Wave {
  const Cpu& cpu;
  const KvPages& kv;
  const AttentionArgs& args;
  const Workspace& workspace;
  const BatchSize& size;
  int64_t share;  // segments per block and wave; fewer when the block has fewer left
  int64_t number = 0;

  AttentionParts Parts(const AttentionBlock& block, int64_t index) const {
    const SegmentRange all = Segments(args, block);
    const int64_t begin = all.begin + number * share;
    return {.begin = begin,
            .end = std::min(begin + share, all.end),
            .states = workspace.states + index * share * workspace.state_floats,
            .state_floats = workspace.state_floats,
            .total = workspace.totals + index * workspace.state_floats};
  }
  // Attends to segments [begin, end), where each block counts for `share` segments.
  void Attend(int64_t begin, int64_t end, int thread) const {
    int64_t first = 0;  // first segment of the block
    ForBlocks(kv, args, size.block, [&](AttentionBlock block, int64_t) {
      const AttentionParts parts = Parts(block, first / share);
      block.scratch = workspace.Scratch(thread);
      const int64_t stop = std::min(end - first, parts.end - parts.begin);
      for (int64_t i = std::max<int64_t>(0, begin - first); i < stop; ++i) {
        cpu.isa->attention_segment(kv, args, block, parts.begin + i,
                                   parts.states + i * parts.state_floats);
      }
      first += share;
    });
  }
  // Folds the segments of blocks [begin, end).
  void Fold(int64_t begin, int64_t end, int thread) const {
    int64_t index = 0;
    ForBlocks(kv, args, size.block, [&](AttentionBlock block, int64_t) {
      const AttentionParts parts = Parts(block, index);
      const bool mine = index >= begin && index < end;
      ++index;
      if (!mine || parts.begin >= parts.end) return;
      block.scratch = workspace.Scratch(thread);
      cpu.isa->attention_fold(kv, args, block, parts);
    });
  }
};

void AttendInSegments(Wave wave) {
  const BatchSize& size = wave.size;
  const auto attend = [&](int64_t begin, int64_t end, int thread) {
    wave.Attend(begin, end, thread);
  };
  const auto fold = [&](int64_t begin, int64_t end, int thread) { wave.Fold(begin, end, thread); };
  for (; wave.number * wave.share < size.most_segments; ++wave.number) {
    RunLoop(wave.cpu, kAttention, size.blocks * wave.share, attend);
    RunLoop(wave.cpu, kAttention, size.blocks, fold);
  }
}

// Counts K and V of the keys of each sequence once, and the products of every row with its keys.
void CountAttention(KernelProfile& profile, const KvPages& kv, const AttentionArgs& args) {
  double keys_read = 0, products = 0;
  for (int64_t i = 0; i < args.num_sequences; ++i) {
    const AttentionSequence& s = args.sequences[i];
    const int64_t end = s.first_position + s.num_rows;
    keys_read += static_cast<double>(LastKey(args, s, s.num_rows - 1) + 1 -
                                     args.window.First(s.first_position));
    for (int64_t position = s.first_position; position < end; ++position) {
      products += static_cast<double>(args.window.Last(position, s.last_key) + 1 -
                                      args.window.First(position));
    }
  }
  const auto head_bytes = static_cast<double>(KvPageBytes(kv.format, kv.head_dim)) / kPageSize;
  const int64_t value_columns = args.value_columns > 0 ? args.value_columns : kv.head_dim;
  profile.Count(
      kAttention, 2 * head_bytes * static_cast<double>(kv.kv_heads) * keys_read,
      2 *
          static_cast<double>(args.q_heads *
                              ((1 + args.vectors.NumTables()) * kv.head_dim + value_columns)) *
          products);
}

}  // namespace

size_t AttentionWorkspaceBytes(int num_threads, int64_t q_heads, int64_t kv_heads,
                               int64_t head_dim) {
  return static_cast<size_t>(Workspace(q_heads, kv_heads, head_dim).Floats(num_threads)) *
         sizeof(float);
}

void PagedAttention(const Cpu& cpu, const KvPages& kv, const AttentionArgs& args) {
  MLC_CHECK(kv.kv_heads > 0 && args.q_heads % kv.kv_heads == 0)
      << "q_heads " << args.q_heads << " kv_heads " << kv.kv_heads;
  MLC_CHECK(args.ldq >= args.q_heads * kv.head_dim && args.ldo >= args.q_heads * kv.head_dim);
  MLC_CHECK(args.workspace != nullptr && args.window.size >= 0);
  MLC_CHECK(args.value_columns >= 0 && args.value_columns <= kv.head_dim);
  const int64_t threads = cpu.pool->num_threads();
  const BatchSize size = DivideBatch(kv, args, threads);
  if (size.blocks == 0) return;
  if (cpu.profile != nullptr) CountAttention(*cpu.profile, kv, args);

  Workspace workspace(args.q_heads, kv.kv_heads, kv.head_dim);
  workspace.Place(args.workspace, threads);
  if (size.InSegments(threads)) {
    const int64_t share = kStatesPerThread * threads / size.blocks;
    AttendInSegments({cpu, kv, args, workspace, size, share});
  } else {
    AttendBlocks(cpu, kv, args, workspace, size);
  }
}

}  // namespace mlc_native::kernels
