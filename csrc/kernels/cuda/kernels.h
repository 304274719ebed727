// The CUDA kernels of the transformer and of sampling, the counterpart of kernels/kernels.h for the
// CPU. Functions take device pointers, sizes and strides (in elements), and a stream. No globals.
//
// Steps in flight: the inputs of a step are at fixed addresses. Embed reads tokens that the host
// does not know yet from where SampleTokens of the previous step has written them; penalties read
// them there too (SamplingRow::pending).
//
// Graphs: every launch depends only on pointers, sizes and strides, not on lengths or ids in device
// memory. A captured decode step of b rows therefore serves every batch of at most b rows: unused
// rows have length 0, and every kernel skips them.
//
// Bitwise contract: a row's result depends only on its own inputs. The splits of attention depend
// on the row's own length, and the key tiles of prefill start at multiples of kPrefillKeys for any
// chunk. Sums run in a fixed order, without floating-point atomics. Gemv and Gemm add in the same
// order for any number of rows.
//
// What only one .cu file uses is in an inline namespace of its name: nvcc would put a hash of the
// file's path into the symbols of a nameless one, and two builds would differ.
//
// Launches throw DeviceError. Shapes are checked. Requires: contents are valid (ids in range,
// finite numbers), and rows start at multiples of 16 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/formats.h"
#include "mlc_native/detail/basic_types.h"

namespace mlc_native::kernels::cuda {

// ---- Embedding ----

// out[i, 0:k] = scale * row ids[i] of the table [n, k]. An id below zero is sampled[-1 - id], or,
// with sampled_ids, what that token stands for: sampled_ids[sampled[-1 - id]].
struct EmbedArgs {
  DType dtype = DType::kBFloat16;
  const void* table = nullptr;
  int64_t k = 0;  // a multiple of 8
  const int32_t* ids = nullptr;
  const int32_t* sampled = nullptr;
  const int32_t* sampled_ids = nullptr;
  int64_t m = 0;
  float scale = 1.0f;
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
// is below zero. One of the types is float32.
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

// ---- Norm, rope, activation ----

// With x:             residual[i] += post_weight ? norm(x[i], post_weight) : x[i], and is then
//                     multiplied by the scale
// With y:             y[i] = pre_weight ? norm(residual[i], pre_weight) : residual[i]
// where norm(v, w) = v / sqrt(mean(v^2) + eps) * (w + weight_offset), or, with subtract_mean, that
// of v - mean(v), plus the bias if there is one. Either part may be absent. y may be x.
struct AddNormArgs {
  DType dtype = DType::kBFloat16;  // of x, y and the weights
  float* residual = nullptr;       // [m, dim]
  const void* x = nullptr;         // [m, dim]
  const void* post_weight = nullptr;
  const void* post_bias = nullptr;
  const void* scale = nullptr;  // one number, with x alone; null: 1
  const void* pre_weight = nullptr;
  const void* pre_bias = nullptr;
  void* y = nullptr;  // [m, dim]
  float weight_offset = 0.0f;
  float eps = 1e-6f;
  float post_eps = 0.0f;  // of post_weight; 0: as eps
  bool subtract_mean = false;
  int64_t m = 0;
  int64_t dim = 0;  // a multiple of 8, at most kMaxNormDim
};
inline constexpr int64_t kMaxNormDim = 16384;
void AddNorm(const AddNormArgs& args, Stream stream);

// sums[i] = the sums of squares of two parts of row i of x, which follow one another: q and k.
struct SquareSumsArgs {
  DType dtype = DType::kBFloat16;
  const void* x = nullptr;  // [m, ld]
  int64_t ld = 0;
  int64_t m = 0;
  int64_t dims[2] = {0, 0};  // of the parts, multiples of 8; without elements the sum is 0
  float* sums = nullptr;     // [m, 2]
};
void SquareSums(const SquareSumsArgs& args, Stream stream);

// x[i] = norm(x[i], weight) for m rows of `dim` elements, row stride ld: q or k as a whole.
struct NormalizeArgs {
  DType dtype = DType::kBFloat16;
  void* x = nullptr;
  int64_t ld = 0;
  const void* weight = nullptr;
  float weight_offset = 0.0f;
  float eps = 1e-6f;
  int64_t m = 0;
  int64_t dim = 0;  // a multiple of 8, at most kMaxNormDim
  // Where x is a part of rows of whole_dim elements: their sums of squares, of every second number.
  const float* square_sums = nullptr;
  int64_t whole_dim = 0;
};
void Normalize(const NormalizeArgs& args, Stream stream);

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
// rotary_dim is paired with j + rotary_dim / 2, or, interleaved, 2 j with 2 j + 1. q is changed in
// place; k and v go to slot slots[i] = page * 16 + offset; with kFloat8 as numbers whose largest
// magnitude is 448, and their scale. Rows with a negative slot are skipped.
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
  bool interleaved = false;
  const float* q_scales = nullptr;  // [max_position]
};
void QkRopeWriteKv(const KvPages& kv, const QkRopeWriteKvArgs& args, Stream stream);

// act(gate) * up, or act(x) without a gate.
struct ActivationRule {
  Activation activation = Activation::kSilu;
  bool gated = true;
  float sharpness = 1.0f;  // of kClampedSwiGlu
  float limit = 0.0f;
};

// out[m, ffn] = act(x[:, 0:ffn]) * x[:, ffn:2*ffn], or act(x[m, ffn]) without a gate; ffn is a
// multiple of 8.
struct ActivateArgs {
  DType dtype = DType::kBFloat16;
  ActivationRule rule{};
  const void* xielu = nullptr;  // of kXielu: [2], alpha_p = softplus of the first and alpha_n = 0.5
                                // + softplus of the second
  const void* x = nullptr;
  void* out = nullptr;
  int64_t m = 0;
  int64_t ffn = 0;
};
void Activate(const ActivateArgs& args, Stream stream);

// gate[i, 0:n] = act(gate[i]) * row rows[i] of `inputs`, or, without rows, row i. Not kXielu.
struct GateInputsArgs {
  DType dtype = DType::kBFloat16;
  Activation activation = Activation::kSilu;
  void* gate = nullptr;           // [m, n]
  const float* inputs = nullptr;  // row stride ld
  int64_t ld = 0;                 // a multiple of 8, and so is n
  const int32_t* rows = nullptr;
  int64_t m = 0;
  int64_t n = 0;
};
void GateInputs(const GateInputsArgs& args, Stream stream);

// x = cap * tanh(x / cap) for n elements.
void SoftCap(float* x, int64_t n, float cap, Stream stream);

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

// ---- Attention ----

// out[i, q_heads, head_dim] = softmax(scale * q k^T, soft-capped) v over the keys
// max(0, p - window + 1) .. p; q head h reads kv head h / (q_heads / kv_heads). A head with a sink
// has e^sink as another term of its softmax's denominator.
struct AttentionArgs {
  DType dtype = DType::kBFloat16;
  const void* q = nullptr;  // row stride ldq
  int64_t ldq = 0;
  void* out = nullptr;
  int64_t ldo = 0;
  int64_t q_heads = 0;
  float scale = 1.0f;
  float soft_cap = 0.0f;                  // 0: none; else s = cap * tanh(s / cap)
  int64_t window = 0;                     // 0: none
  const void* sinks = nullptr;            // [q_heads] of `dtype`; null: none
  const int32_t* block_tables = nullptr;  // position p of table t: page block_tables[t, p / 16]
  int64_t ld_block_tables = 0;
};

// Single rows: row i attends to keys 0 .. lengths[i] - 1, including its own. Rows of length 0 are
// skipped.
struct DecodeRows {
  const int32_t* lengths = nullptr;
  const int32_t* tables = nullptr;  // row i uses table tables[i]; null: table i
  int64_t m = 0;                    // at most kMaxDecodeRows
  int64_t max_splits = 0;           // of all rows together: what the memory is made for
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
void ListSplits(const DecodeRows& rows, int64_t window, Stream stream);
// Requires: ListSplits was the last to write rows.splits, for the same rows and args.window.
void DecodeAttention(const KvPages& kv, const AttentionArgs& args, const DecodeRows& rows,
                     Stream stream);

// `num_rows` consecutive rows of the sequence with table `table`, from `first_position` on.
// Requires: their keys have been written. The host divides rows into tiles of at most
// PrefillTileRows(...).
struct PrefillTile {
  int32_t row_begin = 0;
  int32_t num_rows = 0;
  int32_t first_position = 0;
  int32_t table = 0;
};
inline constexpr int64_t kPrefillKeys = 64;  // keys per step
int64_t PrefillTileRows(int64_t q_heads, int64_t kv_heads, int64_t head_dim);
// Requires 16-bit activations, KV of the same type, head_dim a multiple of 16, and tiles of at
// least a row; DecodeAttention computes all other rows. Tiles with many keys come
// first, for balance.
void PrefillAttention(const KvPages& kv, const AttentionArgs& args, const PrefillTile* tiles,
                      int64_t num_tiles, Stream stream);

// The same for KV of 16 bits and heads of at most 128 elements, on GPUs of compute capability 9.0,
// and the same bits. PrefillAttention leaves it to this where it can, if the environment variable
// MLC_NATIVE_CUDA_WARPGROUP_ATTENTION is 1.
bool HasWarpgroupPrefillAttention(const KvPages& kv, const AttentionArgs& args);
void WarpgroupPrefillAttention(const KvPages& kv, const AttentionArgs& args,
                               const PrefillTile* tiles, int64_t num_tiles, Stream stream);

// ---- Products of few rows ----

// y[m, n] = x[m, k] w^T (+ bias[n]), m at most kMaxGemvRows, k a multiple of 8. Weights:
//   kFloat32, kBFloat16, kFloat16   row-major [n, k], of the type of x
//   kQ8, kQ4, kMxfp4                PackGemvWeights' layout; x of 16 bits
//   kQ8Group32, kQ4Affine           PackGemvWeights' layout; x of float16
//   kFloat8, kFp4Group16            PackGemvWeights' layout; x of bfloat16
// Products of 16-bit types may go on with what they have computed, instead of storing it:
//   activates   y[m, n / 2] = act(the first n / 2) * the others, or y[m, n] = act(all) without a
//               gate, with the bits of Gemv and Activate. Not kXielu
//   accumulate  y += the product as it would have been stored, with the bits of Gemv and AddNorm
// A product of one row (m = 1) may begin with what comes before it:
//   normalizes  x is float32, a row of the residual, and the product is that of its norm, with the
//               bits of AddNorm and Gemv. Each block computes the norm for itself
struct RowNorm {
  const void* weight = nullptr;  // [k], of the product's dtype
  float weight_offset = 0.0f;
  float eps = 1e-6f;
};
struct GemvArgs {
  WeightFormat format = WeightFormat::kBFloat16;
  DType dtype = DType::kBFloat16;  // of x, y and bias
  const void* weight = nullptr;
  int64_t n = 0;
  int64_t k = 0;
  const void* x = nullptr;
  int64_t ldx = 0;
  int64_t m = 0;
  const void* bias = nullptr;
  void* y = nullptr;  // of `dtype`, or float32
  int64_t ldy = 0;
  bool float_output = false;  // logits
  bool accumulate = false;    // float_output only: the residual stream
  bool activates = false;     // neither float_output nor accumulate
  ActivationRule activation{};
  bool normalizes = false;  // Gemv only; not accumulate. k is at most kMaxNormGemvK
  RowNorm norm{};
};
inline constexpr int64_t kMaxNormGemvK = 4096;
inline constexpr int64_t kMaxGemvRows = 32;
void Gemv(const GemvArgs& args, Stream stream);
void CheckActivation(const GemvArgs& args);          // that it is one that products have
void NormGemv(const GemvArgs& args, Stream stream);  // Gemv's products that normalize

// The same for up to kMaxBatchRows rows with activations of 16 bits, on GPUs with clusters (compute
// capability 9.0 and later), and the same bits. Faster than Gemv from about 9 rows on: there Gemv
// leaves more than 16 rows, or 8 of a weight without scales, to it.
inline constexpr int64_t kMaxBatchRows = 128;
bool HasBatchGemv(const GemvArgs& args);
void BatchGemv(const GemvArgs& args, Stream stream);

// The same for any m, and the same bits: a row's sums have Gemv's order whatever m is. Slower than
// Gemv where rows are few. It does not activate.
void Gemm(const GemvArgs& args, Stream stream);

// The same of weights that are not quantized, with activations of 16 bits, on GPUs of compute
// capability 9.0, and the same bits. It does not activate. Faster than the others from about 65
// rows on. Gemm leaves them to it there.
bool HasWarpgroupGemm(const GemvArgs& args);
void WarpgroupGemm(const GemvArgs& args, Stream stream);

// Packs codes and scales of a quantized weight [n, k] in the order in which lanes load them. Values
// are scale * (code - offset), with float16 scales, offset 128 or 8 and groups of 64 or 32 k; of
// kQ4Affine a shift in float16, which is behind each scale, is added to the difference; of kMxfp4
// they are scale * kMxfp4Doubled[code] (packed_format.h), with bfloat16 scales and groups of 32; of
// kFp4Group16 the same, rounded to bfloat16, with groups of 16; of kFloat8 they are scale * the
// E4M3 number, with float32 scales and groups of 64. k is padded to a multiple of kGemvStep with
// zeros (of kQ4Affine, products skip it). Runs on the host.
inline constexpr int64_t kGemvStep = 128;
size_t GemvWeightBytes(WeightFormat format, int64_t n, int64_t k);
struct QuantizedRows {
  const uint8_t* codes = nullptr;    // [n, k], one byte each
  const uint16_t* scales = nullptr;  // [n, groups]; of kFloat8 and kQ4Affine, two each
};
void PackGemvWeights(WeightFormat format, int64_t n, int64_t k, const QuantizedRows& rows,
                     void* packed);

// out[i, 0:k] = row first_row + i of such a weight, with each value rounded to `dtype`. For
// products of many rows.
struct DequantizeArgs {
  WeightFormat format = WeightFormat::kQ8;
  DType dtype = DType::kBFloat16;  // of 16 bits
  const void* weight = nullptr;
  int64_t n = 0;
  int64_t k = 0;  // a multiple of 8
  int64_t first_row = 0;
  int64_t num_rows = 0;
  void* out = nullptr;  // [num_rows, k]
};
void Dequantize(const DequantizeArgs& args, Stream stream);

// ---- Sampling ----

// How one row of logits becomes a token, with the order and meaning of sampling/sampler.h.
struct SamplingRow {
  float inverse_temperature = 1.0f;
  float top_p = 1.0f;
  float min_p = 0.0f;
  int32_t top_k = 0;  // 0: off
  bool greedy = false;
  bool logprobs = false;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  float repetition_penalty = 1.0f;
  int32_t num_bias = 0;
  const int32_t* bias_ids = nullptr;  // distinct
  const float* bias_values = nullptr;
  int32_t num_counts = 0;              // of generated tokens, for the penalties
  const int32_t* count_ids = nullptr;  // distinct
  const int32_t* count_values = nullptr;
  const int32_t* pending = nullptr;  // one token that counts once more (below zero: none), or null
  const int32_t* mask = nullptr;     // bit t % 32 of word t / 32: token t is allowed; null: all are
  uint64_t seed = 0;
  uint64_t sequence = 0;
};

inline constexpr int32_t kBadLogits = -1;       // NaN or +inf among the logits
inline constexpr int32_t kNothingAllowed = -2;  // all at -inf
inline constexpr int kMaxTopLogprobs = 20;

struct SampleArgs {
  float* logits = nullptr;  // [m, vocab], overwritten
  int64_t ld = 0;           // a multiple of 4
  int64_t m = 0;
  int64_t vocab = 0;
  const SamplingRow* rows = nullptr;   // [m]
  const int32_t* positions = nullptr;  // [m] of the token to be drawn
  int32_t* tokens = nullptr;           // [m] or one of the codes above
  float* logprobs = nullptr;           // [m] of the token drawn; rows with logprobs only
  int32_t* top_ids = nullptr;          // [m, kMaxTopLogprobs], best first; -1 where there are less
  float* top_logprobs = nullptr;       // [m, kMaxTopLogprobs]
  void* workspace = nullptr;           // SampleWorkspaceBytes
};
size_t SampleWorkspaceBytes(int64_t m, int64_t vocab);
void SampleTokens(const SampleArgs& args, Stream stream);

// ---- Steps behind guesses ----
//
// `tokens` is memory for tokens and counts, which kernels name by places. Only these kernels read
// and write it.

// values[i] += tokens[counts[i]] where counts[i] is not below zero.
struct AddCountsArgs {
  const int32_t* tokens = nullptr;
  const int32_t* counts = nullptr;  // [m]
  int32_t* values = nullptr;        // [m]
  int64_t m = 0;
};
void AddCounts(const AddCountsArgs& args, Stream stream);

// What the rows of a forward take from `tokens`: where `from` is not below zero, the id of that
// place; where `counts` is not below zero, that count on top of position and length, and the slot
// of the new position.
struct ResolveRowsArgs {
  const int32_t* tokens = nullptr;
  const int32_t* from = nullptr;    // [m]
  const int32_t* counts = nullptr;  // [m]
  int32_t* ids = nullptr;           // [m], and so are the next ones
  int32_t* positions = nullptr;
  int32_t* lengths = nullptr;
  int64_t* slots = nullptr;
  const int32_t* tables = nullptr;  // as AttentionArgs
  const int32_t* block_tables = nullptr;
  int64_t ld_block_tables = 0;
  int64_t m = 0;
};
void ResolveRows(const ResolveRowsArgs& args, Stream stream);

// Rows of a sequence: behind each of the first num_guesses is a guess of what it draws.
struct GuessedRows {
  int32_t first_row = 0;    // of `ids`
  int32_t first_drawn = 0;  // of `drawn`
  int32_t num_guesses = 0;
  int32_t place = 0;
};
// Writes at the place of each sequence how many of its guesses are right, up to the first that is
// not; the token drawn behind those; and all num_guesses + 1 tokens drawn. Below zero they become
// 0: then the sequence is being ended, so any token is fine.
struct AcceptGuessesArgs {
  const GuessedRows* sequences = nullptr;  // [m]
  int64_t m = 0;
  const int32_t* ids = nullptr;
  const int32_t* drawn = nullptr;
  int32_t* guesses = nullptr;  // as `drawn`: the guess behind each row that has one
  int32_t* tokens = nullptr;
};
void AcceptGuesses(const AcceptGuessesArgs& args, Stream stream);

// tokens[places[i]] = drawn[i], with `ids`: ids[drawn[i]]; 0 for a token below zero.
struct PlaceTokensArgs {
  const int32_t* drawn = nullptr;   // [m]
  const int32_t* ids = nullptr;     // or null
  const int32_t* places = nullptr;  // [m]
  int64_t m = 0;
  int32_t* tokens = nullptr;
};
void PlaceTokens(const PlaceTokensArgs& args, Stream stream);

}  // namespace mlc_native::kernels::cuda
