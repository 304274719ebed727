// The pages of keys and values on CUDA, and what writes and copies them. What holds for all kernels
// is in kernels.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/formats.h"
#include "mlc_native/detail/basic_types.h"

namespace mlc_native::kernels::cuda {

// Bytes of K, or of V, of one kv head in one page: 16 rows of head_dim elements, and with kFloat8
// the float32 scales of the 16 tokens behind them, as with the CPU's kInt8. A scale is of a token
// and a head, so that what is stored for a token depends on nothing else: one of a page would
// change with every token that is added.
constexpr int64_t KvScaleBytes(KvFormat format) {
  return format == KvFormat::kFloat8 ? kKvPageSize * static_cast<int64_t>(sizeof(float)) : 0;
}
constexpr int64_t KvHeadBytes(KvFormat format, int64_t head_dim) {
  return kKvPageSize * head_dim * KvElementBytes(format) + KvScaleBytes(format);
}

// One layer's pages, [num_pages, kv_heads, KvHeadBytes] for K and for V, so the 16 keys of a head
// are contiguous. kFloat8: value = scale * an E4M3 number; kInt8 is for the CPU only.
struct KvPages {
  KvFormat format = KvFormat::kBFloat16;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;  // a multiple of 8, at most kMaxWideHeadDim
  // Of latent attention (latent.h), else 0: the values are the last latent_dim elements of the
  // keys, and v is null. head_dim is at most kMaxLatentDim + kMaxLatentRopeDim then.
  int64_t latent_dim = 0;
  int64_t num_pages = 0;
  void* k = nullptr;
  void* v = nullptr;

  constexpr int64_t head_bytes() const { return KvHeadBytes(format, head_dim); }
  // Of what attention gives for a query head.
  constexpr int64_t value_dim() const { return latent_dim > 0 ? latent_dim : head_dim; }
};
// Attention to larger heads is that of latent.h, without windows, soft caps and sinks.
inline constexpr int64_t kMaxHeadDim = 256;
inline constexpr int64_t kMaxWideHeadDim = 512;

// Which of a row's keys and values there are.
enum class KvParts { kBoth, kKeysAlone, kNone };

// qkv[i] consists of q_heads, kv_heads and kv_heads vectors of head_dim. With kKeysAlone there are
// no values in it: they are made of the keys. With kNone there is q alone, and nothing goes to the
// pages.
//
// q, k and v of each head are normalized (if there are weights; behind the rope if asked), q and k
// are rotated, and q is scaled by q_scales[position] (if there are any): element j of the first
// rotary_dim is paired with j + rotary_dim / 2, or, interleaved, 2 j with 2 j + 1. A pair is turned
// as its row of cos and sin says, which is the position, or, with components, the number of
// rope_positions that the pair's component names. q is changed in place; k and v go to slot
// slots[i] = page * 16 + offset; with kFloat8 as numbers whose largest magnitude is 448, and their
// scale. Rows with a negative slot are skipped.
struct QkRopeWriteKvArgs {
  DType dtype = DType::kBFloat16;
  void* qkv = nullptr;
  int64_t ld = 0;
  int64_t m = 0;
  int64_t q_heads = 0;
  KvParts parts = KvParts::kBoth;
  const void* q_norm = nullptr;  // [head_dim], and the next ones likewise
  const void* k_norm = nullptr;
  const void* v_norm = nullptr;
  int64_t ld_norm = 0;  // from head to head; 0: they share the weights
  float weight_offset = 0.0f;
  float eps = 1e-6f;
  bool subtract_mean = false;
  bool rope_first = false;
  int64_t rotary_dim = 0;              // even, at most head_dim; 0: no rope
  const int32_t* positions = nullptr;  // [m]
  const int64_t* slots = nullptr;      // [m]
  const float* cos = nullptr;          // [max_position, rotary_dim / 2]
  const float* sin = nullptr;
  const int32_t* rope_positions = nullptr;  // [m, 3]
  const uint8_t* components = nullptr;      // [rotary_dim / 2], each below 3; or null
  bool interleaved = false;
  const float* q_scales = nullptr;  // [max_position]
};
void QkRopeWriteKv(const KvPages& kv, const QkRopeWriteKvArgs& args, Stream stream);

// Copies page copies[i].src_page to dst_page in all layers. Sources and destinations are distinct.
// The pages of layer l are l * layer_stride bytes behind those of `first`.
struct CopyPagesArgs {
  KvPages first;
  int64_t num_layers = 0;
  int64_t layer_stride = 0;
  const PageCopy* copies = nullptr;
  int64_t num_copies = 0;
};
void CopyPages(const CopyPagesArgs& args, Stream stream);

}  // namespace mlc_native::kernels::cuda
