// Compressed attention (DeepSeek V4): so many consecutive tokens, a window, become one entry, which
// is a key and the value, too. A row attends to the last tokens and to entries.
//
// What is made of the sum of a window (token_windows.h) lies in the slot of its last token, so that
// pages that are shared, copied or kept have all that belongs to their tokens. A row sees the
// entries of the windows that end at its position or in front of it.
//
// The contracts of kernels.h hold: entries and rows depend on their own sequence only. No call
// allocates. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/key_choice.h"
#include "kernels/token_windows.h"

namespace mlc_native::kernels {

void CopyPage(const TokenRows& rows, int64_t from_page, int64_t to_page);

struct WriteTokenRowsArgs {
  const float* x = nullptr;  // [m, rows.width], row stride ldx
  int64_t ldx = 0;
  int64_t m = 0;
  const int64_t* slots = nullptr;  // as of WriteKvArgs
};
MLC_NATIVE_PRIVATE_API void WriteTokenRows(const Cpu& cpu, const TokenRows& rows,
                                           const WriteTokenRowsArgs& args);

// Writes the sums of windows (token_windows.h). Requires: the rows of the tokens have been written.
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
