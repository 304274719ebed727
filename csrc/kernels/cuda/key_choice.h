// The CUDA kernels of a choice of keys: an index scores the keys of a row, and the best ones are
// those that attention reads (AttentionArgs::chosen). What a score is, is said in
// kernels/key_choice.h.
//
// The contracts of kernels.h hold: launches depend on sizes alone, and a row's choice has the same
// bits in any batch. Of keys with equal scores, the earlier ones are taken.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/kv_pages.h"
#include "kernels/cuda/stream.h"

namespace mlc_native::kernels::cuda {

inline constexpr int64_t kMaxIndexDim = 256;  // a multiple of 8
inline constexpr int64_t kMaxIndexHeads = 64;

// Pages of an index: keys alone, of one head, in the type of the activations.
KvPages IndexPages(DType dtype, int64_t head_dim, int64_t num_pages, void* k);

// Of each row: the queries of all heads are rotated in place; the key is normalized (a LayerNorm
// with weight and bias), rotated and written to slot slots[i]. Rows with a negative slot are
// skipped.
struct WriteIndexArgs {
  DType dtype = DType::kBFloat16;
  void* queries = nullptr;  // [m, heads, head_dim]
  int64_t heads = 0;
  const void* keys = nullptr;         // [m, head_dim]
  const void* norm_weight = nullptr;  // [head_dim]
  const void* norm_bias = nullptr;    // [head_dim]
  float eps = 1e-6f;
  int64_t m = 0;
  int64_t rotary_dim = 0;              // even, at most head_dim; 0: no rope
  const int32_t* positions = nullptr;  // [m]
  const int64_t* slots = nullptr;      // [m]
  const float* cos = nullptr;          // [max_position, rotary_dim / 2]
  const float* sin = nullptr;
  bool interleaved = false;
};
void WriteIndex(const KvPages& index, const WriteIndexArgs& args, Stream stream);

// Writes to chosen[i] the positions, ascending, of the num_chosen keys of row i that score best, or
// of all if there are no more, and to counts[i] how many there are.
struct ChooseKeysArgs {
  DType dtype = DType::kBFloat16;
  const void* queries = nullptr;  // [m, heads, head_dim]
  int64_t heads = 0;
  const float* weights = nullptr;   // [m, heads]
  const int32_t* lengths = nullptr; // [m]: row i scores keys 0 .. lengths[i] - 1
  const int32_t* tables = nullptr;  // row i uses table tables[i]; null: table i
  const int32_t* block_tables = nullptr;
  int64_t ld_block_tables = 0;
  int64_t m = 0;
  int64_t max_length = 0;  // of a row
  int64_t num_chosen = 0;
  float* scores = nullptr;    // ChosenAtOnce rows of ScoreRow floats
  int32_t* chosen = nullptr;  // [m, num_chosen]
  int32_t* counts = nullptr;  // [m]
};
inline constexpr int64_t kChosenAtOnce = 64;  // rows
int64_t ScoreRow(int64_t max_length);
void ChooseKeys(const KvPages& index, const ChooseKeysArgs& args, Stream stream);

}  // namespace mlc_native::kernels::cuda
