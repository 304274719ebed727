// Attention of CUDA to keys and values in pages, of single rows (decode) and of many rows of a
// sequence (prefill). What holds for all kernels is in kernels.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/kv_pages.h"
#include "kernels/cuda/stream.h"
#include "kernels/distance_bias.h"
#include "kernels/formats.h"
#include "kernels/window.h"
#include "mlc_native/detail/basic_types.h"

namespace mlc_native::kernels::cuda {

// out[i, q_heads, head_dim] = softmax(scale * q k^T, soft-capped, + bias) v over the keys
// window.First(p) .. window.Last(p, last_key); q head h reads kv head h / (q_heads / kv_heads). A
// head with a sink has e^sink as another term of its softmax's denominator.
struct AttentionArgs {
  DType dtype = DType::kBFloat16;
  const void* q = nullptr;  // row stride ldq
  int64_t ldq = 0;
  void* out = nullptr;
  int64_t ldo = 0;
  int64_t q_heads = 0;
  float scale = 1.0f;
  float soft_cap = 0.0f;  // 0: none; else s = cap * tanh(s / cap)
  AttentionWindow window{};
  DistanceBias
      bias{};  // by the distance of positions: of DecodeAttention and keys of 16 or 32 bits
  const void* sinks = nullptr;            // [q_heads] of `dtype`; null: none
  const int32_t* block_tables = nullptr;  // position p of table t: page block_tables[t, p / 16]
  int64_t ld_block_tables = 0;
  // Of single rows and latents: key i of row r is the one at position chosen[r, i], and lengths
  // count the chosen ones; null: at position i.
  const int32_t* chosen = nullptr;
  int64_t ld_chosen = 0;
};

// Single rows: the last key is lengths[i] - 1. Rows of length 0 are skipped.
struct DecodeRows {
  const int32_t* lengths = nullptr;
  const int32_t* positions = nullptr;  // of each row; null: its own key is the last one
  const int32_t* tables = nullptr;     // row i uses table tables[i]; null: table i
  int64_t m = 0;                       // at most kMaxDecodeRows
  int64_t max_splits = 0;              // of all rows together: what the memory is made for
  int64_t most_heads = 0;              // likewise, of queries; 0: as many as the call has
  void* workspace = nullptr;  // DecodeWorkspaceBytes; its first ZeroedDecodeBytes zero before the
                              // first use (each call leaves them so)
  void* splits = nullptr;     // DecodeSplitsBytes: what ListSplits has written for these rows
};
inline constexpr int64_t kMaxDecodeRows = 1024;
// Into how many splits the keys of a row of at most this length are divided at most, whatever the
// window.
int64_t MaxDecodeSplits(int64_t length);
// value_dim: KvPages::value_dim.
size_t DecodeWorkspaceBytes(int64_t max_splits, int64_t q_heads, int64_t value_dim);
size_t ZeroedDecodeBytes(int64_t q_heads);
// Writes how the keys of the rows are divided among blocks, for all layers with this window.
// Requires: the MaxDecodeSplits of the rows' lengths add up to at most rows.max_splits.
size_t DecodeSplitsBytes(int64_t max_splits);
void ListSplits(const DecodeRows& rows, AttentionWindow window, Stream stream);
// Requires: ListSplits was the last to write rows.splits, for the same rows and args.window.
void DecodeAttention(const KvPages& kv, const AttentionArgs& args, const DecodeRows& rows,
                     Stream stream);

// `num_rows` consecutive rows of the sequence with table `table`, from `first_position` on.
// Requires: their keys have been written. The host divides rows into tiles of at most
// PrefillTileRows(...), and of a chunk, where windows are chunks.
struct PrefillTile {
  int32_t row_begin = 0;
  int32_t num_rows = 0;
  int32_t first_position = 0;
  int32_t table = 0;
  int32_t last_key = 0;  // of latents and of heads above kMaxHeadDim 0
};
inline constexpr int64_t kPrefillKeys = 64;  // keys per step
int64_t PrefillTileRows(int64_t q_heads, int64_t kv_heads, int64_t head_dim);
// Requires 16-bit activations, KV of the same type, head_dim a multiple of 16, no bias, and tiles
// of at least a row; DecodeAttention computes all other rows. Tiles with many keys come
// first, for balance.
void PrefillAttention(const KvPages& kv, const AttentionArgs& args, const PrefillTile* tiles,
                      int64_t num_tiles, Stream stream);

// The same for KV of 16 bits and heads of at most 128 elements, on GPUs of compute capability 9.0,
// and the same bits. PrefillAttention leaves it to this where it can, if the environment variable
// MLC_NATIVE_CUDA_WARPGROUP_ATTENTION is 1.
bool HasWarpgroupPrefillAttention(const KvPages& kv, const AttentionArgs& args);
void WarpgroupPrefillAttention(const KvPages& kv, const AttentionArgs& args,
                               const PrefillTile* tiles, int64_t num_tiles, Stream stream);

}  // namespace mlc_native::kernels::cuda
