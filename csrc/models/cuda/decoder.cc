#include "models/cuda/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "support/check.h"
#include "support/half.h"

namespace mlc_native {
namespace {

using namespace kernels::cuda;  // NOLINT: the vocabulary of this file

constexpr size_t kAlign = 256;
constexpr size_t kMaxDecodeBytes = size_t{256} << 20;  // of DecodeAttention's workspace

float RoundTo(DType dtype, float value) {
  float stored = 0;
  StoreElement(dtype, &stored, 0, value);
  return LoadElement(dtype, &stored, 0);
}

void* Advance(const void* data, int64_t elements, DType dtype) {
  return static_cast<char*>(const_cast<void*>(data)) +
         elements * static_cast<int64_t>(DTypeSize(dtype));
}

}  // namespace

// Every sequence has a row of logits now and then; a prompt in float32 takes several calls.
int64_t CudaDecoder::DecodeRowsAtOnce(const ModelConfig& config, const Limits& limits) {
  constexpr int64_t kFew = 64;
  const size_t row_bytes =
      DecodeWorkspaceBytes(1, limits.max_length, config.num_heads, config.head_dim);
  const auto affordable = static_cast<int64_t>(kMaxDecodeBytes / row_bytes);
  return std::min({limits.max_rows, std::max(limits.max_logits, kFew), kMaxDecodeRows,
                   std::max<int64_t>(affordable, 1)});
}

CudaDecoder::Buffers CudaDecoder::Place(const ModelConfig& config, DType dtype,
                                        const Limits& limits, void* data, size_t* bytes) {
  size_t at = 0;
  const auto take = [&](int64_t elements, size_t element_bytes) {
    void* place = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(data) + at);  // data: or null
    at += (static_cast<size_t>(elements) * element_bytes + kAlign - 1) / kAlign * kAlign;
    return place;
  };
  const auto rows = [&](int64_t width) { return take(limits.max_rows * width, DTypeSize(dtype)); };
  const size_t decode_bytes = DecodeWorkspaceBytes(
      DecodeRowsAtOnce(config, limits), limits.max_length, config.num_heads, config.head_dim);
  Buffers buffers{};
  // First, so that whoever allocates knows what to set to zero.
  buffers.decode = take(static_cast<int64_t>(decode_bytes), 1);
  buffers.residual = static_cast<float*>(take(limits.max_rows * config.hidden_size, sizeof(float)));
  buffers.hidden = rows(config.hidden_size);
  buffers.qkv = rows(config.qkv_size());
  buffers.attention = rows(config.q_size());
  buffers.ffn = rows(2 * config.ffn_size);
  buffers.activated = rows(config.ffn_size);
  buffers.kept_residual =
      static_cast<float*>(take(limits.max_logits * config.hidden_size, sizeof(float)));
  buffers.kept_attention = take(limits.max_logits * config.q_size(), DTypeSize(dtype));
  buffers.logits = static_cast<float*>(take(limits.max_logits * LdLogits(config), sizeof(float)));
  *bytes = at;
  return buffers;
}

size_t CudaDecoder::WorkspaceBytes(const ModelConfig& config, DType dtype, const Limits& limits) {
  size_t bytes = 0;
  Place(config, dtype, limits, nullptr, &bytes);
  return bytes;
}

CudaDecoder::CudaDecoder(const ModelConfig& config, CudaDecoderWeights weights,
                         std::vector<KvPages> kv, const Limits& limits, void* workspace,
                         ManyRows many_rows, Stream stream)
    : config_(config),
      weights_(std::move(weights)),
      kv_(std::move(kv)),
      limits_(limits),
      many_rows_(std::move(many_rows)),
      stream_(stream),
      buffers_([&] {
        size_t bytes = 0;
        return Place(config_, weights_.dtype, limits_, workspace, &bytes);
      }()) {
  MLC_CHECK(weights_.layers.size() == config_.layers.size() && kv_.size() == weights_.layers.size())
      << weights_.layers.size() << " layers";
}

float* CudaDecoder::Forward(const CudaBatch& batch) {
  MLC_CHECK(batch.num_rows > 0 && batch.num_rows <= limits_.max_rows) << batch.num_rows;
  MLC_CHECK(batch.num_logits <= limits_.max_logits) << batch.num_logits;
  num_rows_ = batch.num_rows;
  residual_ = buffers_.residual;
  attention_ = buffers_.attention;
  has_product_ = false;
  const auto hidden = static_cast<double>(config_.hidden_size);
  const float scale = config_.arch->scales_embeddings
                          ? RoundTo(weights_.dtype, static_cast<float>(std::sqrt(hidden)))
                          : 1.0f;
  Embed({.dtype = weights_.dtype,
         .table = weights_.embeddings,
         .k = config_.hidden_size,
         .ids = batch.token_ids,
         .sampled = batch.sampled,
         .m = num_rows_,
         .scale = scale,
         .out = residual_},
        stream_);
  const size_t last = weights_.layers.size() - 1;
  for (size_t layer = 0; layer <= last; ++layer) {
    Attention(layer, batch);
    // Past the last keys and values, only rows whose logits are wanted matter.
    if (layer == last) {
      if (batch.num_logits == 0) return buffers_.logits;
      KeepRows(batch);
    }
    FeedForward(layer);
  }
  AddAndNormalize(weights_.final_norm);
  Multiply({.format = weights_.head.format,
            .dtype = weights_.dtype,
            .weight = weights_.head.data,
            .n = weights_.head.n,
            .k = weights_.head.k,
            .x = buffers_.hidden,
            .ldx = weights_.head.k,
            .m = num_rows_,
            .y = buffers_.logits,
            .ldy = ld_logits(),
            .float_output = true});
  if (config_.final_soft_cap > 0) {
    SoftCap(buffers_.logits, num_rows_ * ld_logits(), config_.final_soft_cap, stream_);
  }
  return buffers_.logits;
}

void CudaDecoder::AddAndNormalize(const void* pre_norm) {
  AddNorm({.dtype = weights_.dtype,
           .residual = residual_,
           .x = has_product_ ? buffers_.hidden : nullptr,
           .post_weight = product_norm_,
           .pre_weight = pre_norm,
           .y = buffers_.hidden,
           .weight_offset = config_.norm_weight_offset,
           .eps = config_.rms_norm_eps,
           .m = num_rows_,
           .dim = config_.hidden_size},
          stream_);
  has_product_ = false;
}

void CudaDecoder::Project(const CudaMatrix& w, const void* bias, const void* x, void* y) {
  Multiply({.format = w.format,
            .dtype = weights_.dtype,
            .weight = w.data,
            .n = w.n,
            .k = w.k,
            .x = x,
            .ldx = w.k,
            .m = num_rows_,
            .bias = bias,
            .y = y,
            .ldy = w.n});
}

void CudaDecoder::Multiply(const GemvArgs& args) {
  if (args.m > kMaxGemvRows && many_rows_ && many_rows_(args, stream_)) return;
  GemvArgs piece = args;
  const DType y_type = args.float_output ? DType::kFloat32 : args.dtype;
  for (int64_t row = 0; row < args.m; row += kMaxGemvRows) {
    piece.m = std::min(kMaxGemvRows, args.m - row);
    piece.x = Advance(args.x, row * args.ldx, args.dtype);
    piece.y = Advance(args.y, row * args.ldy, y_type);
    Gemv(piece, stream_);
  }
}

// ---- Attention ----

void CudaDecoder::Attention(size_t layer, const CudaBatch& batch) {
  const CudaLayerWeights& w = weights_.layers[layer];
  AddAndNormalize(w.vector(Vector::kPreAttentionNorm));
  Project(w.matrix(Matrix::kQkv), w.bias(Matrix::kQkv), buffers_.hidden, buffers_.qkv);
  const bool per_head = config_.arch->qk_norm == QkNorm::kPerHead;
  if (config_.arch->qk_norm == QkNorm::kWholeProjection) NormalizeWholeProjections(w);
  const auto rope = static_cast<size_t>(config_.layers[layer].rope);
  QkRopeWriteKv(kv_[layer],
                {.dtype = weights_.dtype,
                 .qkv = buffers_.qkv,
                 .ld = config_.qkv_size(),
                 .m = num_rows_,
                 .q_heads = config_.num_heads,
                 .q_norm = per_head ? w.vector(Vector::kQNorm) : nullptr,
                 .k_norm = per_head ? w.vector(Vector::kKNorm) : nullptr,
                 .weight_offset = config_.norm_weight_offset,
                 .eps = config_.rms_norm_eps,
                 .rotary_dim = config_.ropes[rope].rotary_dim,
                 .positions = batch.positions,
                 .slots = batch.slots,
                 .cos = weights_.ropes[rope].cos,
                 .sin = weights_.ropes[rope].sin},
                stream_);
  Attend(layer, batch);
}

void CudaDecoder::NormalizeWholeProjections(const CudaLayerWeights& w) {
  NormalizeArgs args{.dtype = weights_.dtype,
                     .x = buffers_.qkv,
                     .ld = config_.qkv_size(),
                     .weight = w.vector(Vector::kQNorm),
                     .weight_offset = config_.norm_weight_offset,
                     .eps = config_.rms_norm_eps,
                     .m = num_rows_,
                     .dim = config_.q_size()};
  Normalize(args, stream_);
  args.x = Advance(buffers_.qkv, config_.q_size(), weights_.dtype);
  args.weight = w.vector(Vector::kKNorm);
  args.dim = config_.kv_size();
  Normalize(args, stream_);
}

AttentionArgs CudaDecoder::AttentionArgsOf(size_t layer, const CudaBatch& batch) const {
  return {.dtype = weights_.dtype,
          .q = buffers_.qkv,
          .ldq = config_.qkv_size(),
          .out = buffers_.attention,
          .ldo = config_.q_size(),
          .q_heads = config_.num_heads,
          .scale = config_.attention_scale,
          .soft_cap = config_.attention_soft_cap,
          .window = config_.layers[layer].window,
          .block_tables = batch.block_tables,
          .ld_block_tables = batch.ld_block_tables};
}

// What the tensor cores cannot do, rows do one by one.
bool CudaDecoder::HasTiles() const {
  constexpr int64_t kTensorCoreK = 16;
  constexpr int64_t kMaxGroup = 128;
  return weights_.dtype != DType::kFloat32 && config_.head_dim % kTensorCoreK == 0 &&
         config_.num_heads / config_.num_kv_heads <= kMaxGroup;
}

void CudaDecoder::Attend(size_t layer, const CudaBatch& batch) {
  const bool has_tiles = HasTiles();
  const int64_t single_rows = has_tiles ? batch.num_decode_rows : num_rows_;
  const int64_t at_once = DecodeRowsAtOnce(config_, limits_);
  for (int64_t row = 0; row < single_rows; row += at_once) {
    AttendDecode(layer, batch, row, std::min(at_once, single_rows - row));
  }
  if (!has_tiles || batch.num_tiles == 0) return;
  PrefillAttention(kv_[layer], AttentionArgsOf(layer, batch), batch.tiles, batch.num_tiles,
                   stream_);
}

void CudaDecoder::AttendDecode(size_t layer, const CudaBatch& batch, int64_t first,
                               int64_t num_rows) {
  AttentionArgs args = AttentionArgsOf(layer, batch);
  args.q = Advance(args.q, first * args.ldq, weights_.dtype);
  args.out = Advance(args.out, first * args.ldo, weights_.dtype);
  DecodeAttention(kv_[layer], args,
                  {.lengths = batch.lengths + first,
                   .tables = batch.tables + first,
                   .m = num_rows,
                   .max_rows = DecodeRowsAtOnce(config_, limits_),
                   .max_length = limits_.max_length,
                   .workspace = buffers_.decode},
                  stream_);
}

// ---- The rest of a layer ----

void CudaDecoder::KeepRows(const CudaBatch& batch) {
  num_rows_ = batch.num_logits;
  if (batch.logits_rows == nullptr) return;
  GatherRows(buffers_.residual, batch.logits_rows, num_rows_,
             config_.hidden_size * static_cast<int64_t>(sizeof(float)), buffers_.kept_residual,
             stream_);
  GatherRows(buffers_.attention, batch.logits_rows, num_rows_,
             config_.q_size() * static_cast<int64_t>(DTypeSize(weights_.dtype)),
             buffers_.kept_attention, stream_);
  residual_ = buffers_.kept_residual;
  attention_ = buffers_.kept_attention;
}

void CudaDecoder::FeedForward(size_t layer) {
  const CudaLayerWeights& w = weights_.layers[layer];
  Project(w.matrix(Matrix::kOut), w.bias(Matrix::kOut), attention_, buffers_.hidden);
  has_product_ = true;
  product_norm_ = w.vector(Vector::kPostAttentionNorm);
  AddAndNormalize(w.vector(Vector::kPreFfnNorm));
  Project(w.matrix(Matrix::kGateUp), w.bias(Matrix::kGateUp), buffers_.hidden, buffers_.ffn);
  Activate({.dtype = weights_.dtype,
            .activation = config_.activation,
            .x = buffers_.ffn,
            .out = buffers_.activated,
            .m = num_rows_,
            .ffn = config_.ffn_size},
           stream_);
  Project(w.matrix(Matrix::kDown), w.bias(Matrix::kDown), buffers_.activated, buffers_.hidden);
  has_product_ = true;
  product_norm_ = w.vector(Vector::kPostFfnNorm);
}

}  // namespace mlc_native
