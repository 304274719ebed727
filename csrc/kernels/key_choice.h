// The kernels of a choice of keys: an index scores the keys of a query, ChooseKeys takes the best
// ones, and AttendToChosen attends to these alone.
//
// The score of a key for a row is the sum over the index heads h of
//   weights[row, h] * max(0, q[row, h] . k),
// where all heads read one key of each token, in pages of their own that have keys alone. The
// contracts of kernels.h hold: a row's choice and result depend on its own sequence only. Of keys
// with equal scores, the earlier ones are taken.
//
// No call allocates. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kernels.h"

namespace mlc_native::kernels {

// What memory is made for.
struct KeyChoiceShape {
  int num_threads = 1;
  int64_t max_positions = 0;
  int64_t num_chosen = 0;
  int64_t heads = 0;     // of the index
  int64_t head_dim = 0;  // likewise
  // Only the last of so many positions has a key. Keys are numbered, and those chosen are numbers.
  int64_t step = 1;
  // Of the keys and values that are attended to, which are of one head: a key [rope | latent] and
  // a value [latent | rope], with the same elements.
  KvFormat format = KvFormat::kFloat32;
  int64_t kv_head_dim = 0;
  int64_t rope_dim = 0;
};
// For both calls, aligned to kPackedAlignment.
MLC_NATIVE_PRIVATE_API size_t KeyChoiceWorkspaceBytes(const KeyChoiceShape& shape);

// Rows that choose, each a sequence of one row that has more than shape.num_chosen keys up to its
// position: rows in front of these have no more than they may attend to.
using ChoosingRows = std::span<const AttentionSequence>;

struct ChooseKeysArgs {
  const float* q = nullptr;  // [m, heads, head_dim], row stride ldq
  int64_t ldq = 0;
  const float* weights = nullptr;  // [m, heads], row stride ld_weights
  int64_t ld_weights = 0;
  ChoosingRows rows;
  void* workspace = nullptr;
  int32_t* chosen = nullptr;  // [rows, num_chosen]: positions (numbers), ascending
};
// Requires: the keys of the rows themselves have been written to `index`.
MLC_NATIVE_PRIVATE_API void ChooseKeys(const Cpu& cpu, const KeyChoiceShape& shape,
                                       const KvPages& index, const ChooseKeysArgs& args);

struct ChosenKeys {
  ChoosingRows rows;
  const int32_t* chosen = nullptr;  // what ChooseKeys has written for these rows
  void* workspace = nullptr;
};
// PagedAttention of the rows over the keys chosen for them; args.sequences is not read, and there
// is no window. What a few rows have chosen is copied to pages that lie together, keys from their
// values.
MLC_NATIVE_PRIVATE_API void AttendToChosen(const Cpu& cpu, const KeyChoiceShape& shape,
                                           const KvPages& kv, const AttentionArgs& args,
                                           const ChosenKeys& keys);

}  // namespace mlc_native::kernels
