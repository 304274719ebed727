// Rows that become others on CUDA: of the embeddings, chosen, moved, or added up. What holds for
// all kernels is in kernels.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/formats.h"
#include "mlc_native/detail/basic_types.h"

namespace mlc_native::kernels::cuda {

// out[i, 0:k] = scale * row ids[i] of the table [n, k]. An id below zero is sampled[-1 - id], or,
// with sampled_ids, what that token stands for: sampled_ids[sampled[-1 - id]]. With position_table
// [.., k], row positions[i] of it is added.
struct EmbedArgs {
  DType dtype = DType::kBFloat16;
  const void* table = nullptr;
  int64_t k = 0;  // a multiple of 8
  const int32_t* ids = nullptr;
  const int32_t* sampled = nullptr;
  const int32_t* sampled_ids = nullptr;
  const void* position_table = nullptr;
  const int32_t* positions = nullptr;
  int64_t m = 0;
  float scale = 1.0f;
  int64_t num_rows = 0;  // of a table that some ids are beyond, which have row 0; 0: of no such one
  float* out = nullptr;  // [m, k]
};
void Embed(const EmbedArgs& args, Stream stream);

// out[i] = in[rows[i]], rows of `row_bytes` (a multiple of 16).
void GatherRows(const void* in, const int32_t* rows, int64_t m, int64_t row_bytes, void* out,
                Stream stream);

// What is known of each row, of some rows: to_positions[i] = positions[rows[i]], and so on.
struct PickRowsArgs {
  const int32_t* rows = nullptr;
  int64_t m = 0;
  const int32_t* positions = nullptr;
  const int32_t* lengths = nullptr;
  const int32_t* tables = nullptr;
  const int64_t* slots = nullptr;
  int32_t* to_positions = nullptr;
  int32_t* to_lengths = nullptr;
  int32_t* to_tables = nullptr;
  int64_t* to_slots = nullptr;
};
void PickRows(const PickRowsArgs& args, Stream stream);

// Row to_rows[j] of `to` = scale * row from_rows[i] of `from`, for m rows of k elements, where j is
// i or, with to_index, to_index[i]. Without rows: row i, row j. Nothing is written where to_rows[j]
// is below zero. One of the types is float32. `from` may be `to`.
struct MoveRowsArgs {
  DType from_dtype = DType::kFloat32;
  const void* from = nullptr;
  int64_t ld_from = 0;  // a multiple of 8, and so are k and ld_to
  const int32_t* from_rows = nullptr;
  DType to_dtype = DType::kFloat32;
  void* to = nullptr;
  int64_t ld_to = 0;
  const int32_t* to_rows = nullptr;
  const int32_t* to_index = nullptr;
  float scale = 1.0f;
  bool adds = false;  // to what is there
  int64_t m = 0;
  int64_t k = 0;
};
void MoveRows(const MoveRowsArgs& args, Stream stream);

// sum[i] = the sum of `num_parts` parts, added in their order in float32. Part p begins at
// parts + p * stride, but part `own` is in `sum`.
struct AddPartsArgs {
  DType dtype = DType::kFloat32;
  const void* parts = nullptr;
  int64_t stride = 0;  // in elements, a multiple of 8
  int num_parts = 0;
  int own = 0;
  void* sum = nullptr;
  int64_t count = 0;  // a multiple of 8
};
void AddParts(const AddPartsArgs& args, Stream stream);

}  // namespace mlc_native::kernels::cuda
