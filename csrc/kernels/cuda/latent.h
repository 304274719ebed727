// The CUDA kernels of latent attention (MLA). Pages have what keys and values come from, once for
// all heads (KvPages::latent_dim): a key is [rope | latent], and its value is the latent. The
// queries of a head have been multiplied with what makes its keys, and its output is to be
// multiplied with what makes its values. Attention to heads of more than kMaxHeadDim elements is
// computed as that to latents is, by a block together.
//
// The contracts of kernels.h hold: launches depend on sizes alone, and the result of a row has the
// same bits in any batch, in any chunk of a prompt and among any rows of a tile.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention.h"

namespace mlc_native::kernels::cuda {

inline constexpr int64_t kMaxLatentDim = 512;  // multiples of 8, as the next one
inline constexpr int64_t kMaxLatentRopeDim = 64;

void CheckLatents(const KvPages& kv);  // that they are pages of latents

// Of each row: the part with rope of each head's query, rotated, in front of the head in q, and the
// whole head scaled by q_scales[position] (if there are any); and the key, whose part with rope is
// rotated and whose latent is normalized as AddNorm does, at slot slots[i]. Rows with a negative
// slot are skipped.
struct WriteLatentsArgs {
  DType dtype = DType::kBFloat16;
  const void* queries = nullptr;  // the part with rope of the first head; rows are ld_queries apart
  int64_t ld_queries = 0;
  int64_t query_step = 0;         // from head to head
  const void* latents = nullptr;  // [m, latent_dim + rope_dim], the latent first
  int64_t ld_latents = 0;
  const void* norm = nullptr;  // [latent_dim]
  float weight_offset = 0.0f;
  float eps = 1e-6f;
  void* q = nullptr;  // [m, q_heads, head_dim], with all but the part with rope of each head
  int64_t ldq = 0;
  int64_t q_heads = 0;
  int64_t m = 0;
  int64_t rotary_dim = 0;  // of the part with rope: even, at most head_dim - latent_dim; 0: none
  const int32_t* positions = nullptr;  // [m]
  const int64_t* slots = nullptr;      // [m]
  const float* cos = nullptr;          // [max_position, rotary_dim / 2]
  const float* sin = nullptr;
  bool interleaved = false;
  const float* q_scales = nullptr;  // [max_position]
};
void WriteLatents(const KvPages& kv, const WriteLatentsArgs& args, Stream stream);

// As DecodeAttention and PrefillAttention, which leave pages of latents and of wide heads to them,
// with out [m, q_heads, value_dim], and without windows, soft caps and sinks. Tiles have at most
// kLatentTileRows or kWideTileRows rows.
inline bool IsLatentOrWide(const KvPages& kv) {
  return kv.latent_dim > 0 || kv.head_dim > kMaxHeadDim;
}
void LatentDecodeAttention(const KvPages& kv, const AttentionArgs& args, const DecodeRows& rows,
                           Stream stream);
inline constexpr int64_t kLatentTileRows = 16;
inline constexpr int64_t kWideTileRows = 32;
void LatentPrefillAttention(const KvPages& kv, const AttentionArgs& args, const PrefillTile* tiles,
                            int64_t num_tiles, Stream stream);

}  // namespace mlc_native::kernels::cuda
