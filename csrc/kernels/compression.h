// Compressed attention (DeepSeek V4): so many consecutive tokens, a window, become one entry, which
// is a key and the value, too. A row attends to the last tokens and to entries.
//
// A token leaves a row of floats in its page: of each channel a number, and a weight that says how
// much the number counts. Channel c of the entry of a window is
//   the sum over its tokens t of softmax_t(weight[t, c] + bias[t, c]) * number[t, c],
// where t counts from the window's first token. With overlaps, tokens have twice as many channels:
// the sum is over the first half of those of the window in front, too, if there is one, and over
// the second half of the window's own. What is made of this sum lies in the slot of the window's
// last token, so that pages that are shared, copied or kept have all that belongs to their tokens.
// A row sees the entries of the windows that end at its position or in front of it.
//
// The contracts of kernels.h hold: entries and rows depend on their own sequence only. No call
// allocates. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/key_choice.h"

namespace mlc_native::kernels {

inline constexpr int64_t kMaxTokensPerEntry = 1024;

// Rows of floats that tokens have in pages, which lie in blocks as those of KvPages do.
struct TokenRows {
  float* data = nullptr;
  int64_t width = 0;
  int64_t num_pages = 0;
  int64_t block_bytes = 0;

  float* At(int64_t page, int64_t token) const {
    float* const block = data + page / kKvBlockPages * (block_bytes / 4);
    return block + (page % kKvBlockPages * kPageSize + token) * width;
  }
};
constexpr int64_t TokenRowsBytes(int64_t num_pages, int64_t width) {
  return num_pages * kPageSize * width * 4;
}
void CopyPage(const TokenRows& rows, int64_t from_page, int64_t to_page);

struct WriteTokenRowsArgs {
  const float* x = nullptr;  // [m, rows.width], row stride ldx
  int64_t ldx = 0;
  int64_t m = 0;
  const int64_t* slots = nullptr;  // as of WriteKvArgs
};
MLC_NATIVE_PRIVATE_API void WriteTokenRows(const Cpu& cpu, const TokenRows& rows,
                                           const WriteTokenRowsArgs& args);

// A window, by its last token.
struct WindowEnd {
  const int32_t* block_table = nullptr;
  int64_t position = 0;
};

struct CompressArgs {
  const TokenRows* tokens = nullptr;
  int64_t numbers = 0;  // columns of `tokens`: the first number, and the first weight
  int64_t weights = 0;
  int64_t dim = 0;  // of an entry
  int64_t num_tokens = 0;
  bool overlaps = false;
  const float* bias = nullptr;  // [num_tokens, dim], or [num_tokens, 2 dim] with overlaps
  const WindowEnd* ends = nullptr;
  int64_t num_ends = 0;
  float* out = nullptr;  // [num_ends, dim], row stride ldo
  int64_t ldo = 0;
};
// Requires: the rows of the tokens have been written.
MLC_NATIVE_PRIVATE_API void Compress(const Cpu& cpu, const CompressArgs& args);

// What memory is made for.
struct EntryShape {
  int64_t max_positions = 0;
  int64_t num_tokens = 0;  // of a window
  int64_t window = 0;      // tokens that a row sees: the last ones up to itself
  int64_t num_chosen = 0;  // entries that a row sees at most; 0: all
  KvFormat format = KvFormat::kFloat32;
  int64_t head_dim = 0;

  int64_t NumSeen(int64_t position) const {
    const int64_t all = (position + 1) / num_tokens;
    return num_chosen > 0 && all > num_chosen ? num_chosen : all;
  }
};
// Aligned to kPackedAlignment.
MLC_NATIVE_PRIVATE_API size_t EntryWorkspaceBytes(const EntryShape& shape);

struct EntriesOfRows {
  std::span<const AttentionSequence> rows;  // each is a sequence of one row
  const KvPages* entries = nullptr;         // v_pages alone, as those of the tokens
  // What ChooseKeys has written for these rows, with the keys of entries in the slots of their
  // windows' last tokens (KeyChoiceShape::step); null: they see all of the first NumSeen entries.
  const int32_t* chosen = nullptr;
  void* workspace = nullptr;
};
// PagedAttention of the rows over the last tokens and the entries that they see; args.sequences and
// args.window are not read. What a few rows see is copied to pages that lie together.
MLC_NATIVE_PRIVATE_API void AttendToEntries(const Cpu& cpu, const EntryShape& shape,
                                            const KvPages& tokens, const AttentionArgs& args,
                                            const EntriesOfRows& of_rows);

}  // namespace mlc_native::kernels
