// Cuts the attention of a mixed batch into blocks (sequence, kv head, rows) and shares them out to
// threads by cost. Which thread gets a block never shows in the result.
#include <algorithm>

#include "kernels/cpu/table.h"
#include "kernels/kernels.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

int64_t BlockRows(int64_t group) { return std::max<int64_t>(1, kMaxBlockQueries / group); }

int64_t ScratchFloats(int64_t q_heads, int64_t kv_heads, int64_t head_dim) {
  const int64_t group = q_heads / kv_heads;
  const int64_t floats = AttentionScratchFloats(BlockRows(group) * group, head_dim);
  const int64_t line = kPackedAlignment / static_cast<int64_t>(sizeof(float));
  return (floats + line - 1) / line * line;  // threads do not share cache lines
}

// Keys that the block's rows read, plus a constant for setting it up: proportional to its time.
int64_t BlockCost(const AttentionArgs& args, const AttentionSequence& s, int64_t begin,
                  int64_t end) {
  int64_t keys = s.first_position + end;
  if (args.window > 0) keys = std::min(keys, args.window + end - begin);
  return (keys + kPageSize) * (end - begin);
}

// Calls visit(block, cost) for every block, always in the same order: the kv heads of a sequence
// outside, so that neighbouring blocks share pages.
template <typename F>
void ForBlocks(const KvLayer& kv, const AttentionArgs& args, F visit) {
  const int64_t rows = BlockRows(args.q_heads / kv.kv_heads);
  for (int64_t i = 0; i < args.num_sequences; ++i) {
    const AttentionSequence& sequence = args.sequences[i];
    for (int64_t head = 0; head < kv.kv_heads; ++head) {
      for (int64_t begin = 0; begin < sequence.num_rows; begin += rows) {
        const int64_t end = std::min(begin + rows, sequence.num_rows);
        visit(AttentionBlock{&sequence, head, begin, end, nullptr},
              BlockCost(args, sequence, begin, end));
      }
    }
  }
}

}  // namespace

size_t AttentionWorkspaceBytes(int num_threads, int64_t q_heads, int64_t kv_heads,
                               int64_t head_dim) {
  return static_cast<size_t>(num_threads * ScratchFloats(q_heads, kv_heads, head_dim)) *
         sizeof(float);
}

void PagedAttention(const Cpu& cpu, const KvLayer& kv, const AttentionArgs& args) {
  MLC_CHECK(kv.kv_heads > 0 && args.q_heads % kv.kv_heads == 0)
      << "q_heads " << args.q_heads << " kv_heads " << kv.kv_heads;
  MLC_CHECK(args.ldq >= args.q_heads * kv.head_dim && args.ldo >= args.q_heads * kv.head_dim);
  MLC_CHECK(args.workspace != nullptr && args.window >= 0);
  int64_t total = 0;
  ForBlocks(kv, args, [&](const AttentionBlock&, int64_t cost) { total += cost; });
  if (total == 0) return;

  // Every thread walks the blocks and takes those whose middle falls into its share of the cost.
  const int64_t scratch_floats = ScratchFloats(args.q_heads, kv.kv_heads, kv.head_dim);
  const auto attend = [&](int64_t begin, int64_t end, int thread) {
    int64_t done = 0;
    ForBlocks(kv, args, [&](AttentionBlock block, int64_t cost) {
      const int64_t middle = done + cost / 2;
      done += cost;
      if (middle < begin || middle >= end) return;
      block.scratch = static_cast<float*>(args.workspace) + thread * scratch_floats;
      cpu.isa->attention(kv, args, block);
    });
  };
  // 256 keys of one row take some 10 us.
  cpu.pool->ParallelFor(total, attend, 256);
}

}  // namespace mlc_native::kernels
