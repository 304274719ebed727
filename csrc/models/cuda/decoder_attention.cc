// CudaDecoder::Forward: attention, and what it needs of q, k and v, as launches of the CUDA
// kernels.
#include <algorithm>
#include <limits>

#include "kernels/cuda/latent.h"
#include "models/cuda/decoder_ops.h"

namespace mlc_native {

using namespace kernels::cuda;  // NOLINT: the vocabulary of this file

void CudaDecoder::Ops::RotateAndWriteKv(size_t layer) {
  const auto& w = weights_.layers[layer];
  const bool own_weights = config_.qk_norm == QkNorm::kPerHeadOwnWeight;
  const bool per_head = config_.qk_norm == QkNorm::kPerHead || own_weights;
  if (config_.latent) return WriteLatents(layer);
  if (config_.qk_norm == QkNorm::kWholeProjection) NormalizeWholeProjections(layer);
  const RopeOfLayer rope = RopeOf(layer);
  const LayerConfig& sizes = config_.layers[layer];
  const KvParts own_parts = sizes.keys_are_values ? KvParts::kKeysAlone : KvParts::kBoth;
  QkRopeWriteKv(decoder_.kv_[layer],
                {.dtype = weights_.dtype,
                 .qkv = Qkv(layer),
                 .ld = QkvRow(config_, sizes),
                 .m = num_rows_,
                 .q_heads = config_.heads_of(sizes),
                 .parts = sizes.has_own_kv() ? own_parts : KvParts::kNone,
                 .q_norm = per_head ? w.norm(NormRole::kQ).weight : nullptr,
                 .k_norm = per_head ? w.norm(NormRole::kK).weight : nullptr,
                 .v_norm = w.norm(NormRole::kV).weight,
                 .ld_norm = own_weights ? config_.head_dim_of(sizes) : 0,
                 .weight_offset = config_.norm_weight_offset,
                 .eps = config_.norm_eps,
                 .subtract_mean = config_.norm_kind == NormKind::kLayer,
                 .rope_first = config_.arch->rope_before_qk_norm,
                 .rotary_dim = rope.rotary_dim,
                 .positions = rows_.positions,
                 .slots = rows_.slots,
                 .cos = rope.tables.cos,
                 .sin = rope.tables.sin,
                 .rope_positions = rows_.rope_positions,
                 .components = rope.tables.components,
                 .interleaved = config_.arch->interleaved_rope,
                 .q_scales = config_.scales_queries(sizes) ? weights_.query_scales : nullptr},
                stream_);
}

CudaDecoder::Ops::RopeOfLayer CudaDecoder::Ops::RopeOf(size_t layer) const {
  const int rope = config_.layers[layer].rope;
  if (rope == LayerConfig::kNoRope) return {};
  return {.rotary_dim = config_.ropes[static_cast<size_t>(rope)].rotary_dim,
          .tables = weights_.ropes[static_cast<size_t>(rope)]};
}

// With several GPUs, of which each has some of the heads, the sums of squares are added up first. A
// KV head that several of them have is counted by the first of those.
void CudaDecoder::Ops::NormalizeWholeProjections(size_t layer) const {
  const auto& w = weights_.layers[layer];
  const Peer& peer = decoder_.peer_;
  if (peer) {
    const bool counts_kv = peer.rank % (peer.peers->size() / config_.num_kv_parts) == 0;
    SumSquaresOverPeers(Qkv(layer), QkvRow(config_, config_.layers[layer]), config_.q_size(),
                        counts_kv ? config_.kv_size() : 0);
  }
  NormalizeArgs args{.dtype = weights_.dtype,
                     .x = Qkv(layer),
                     .ld = QkvRow(config_, config_.layers[layer]),
                     .weight = w.norm(NormRole::kQ).weight,
                     .weight_offset = config_.norm_weight_offset,
                     .eps = config_.norm_eps,
                     .m = num_rows_,
                     .dim = config_.q_size()};
  if (peer) {
    args.square_sums = buffers_.square_sums;
    args.whole_dim = config_.q_size() * peer.peers->size();
  }
  kernels::cuda::Normalize(args, stream_);
  args.x = Advance(Qkv(layer), config_.q_size(), weights_.dtype);
  args.weight = w.norm(NormRole::kK).weight;
  args.dim = config_.kv_size();
  if (peer) {
    args.square_sums = buffers_.square_sums + 1;
    args.whole_dim = config_.kv_size() * config_.num_kv_parts;
  }
  kernels::cuda::Normalize(args, stream_);
}

// Likewise with several GPUs, of which each has a part of the row.
void CudaDecoder::Ops::NormalizeWithin(size_t layer, NormRole role, void* x) const {
  const Norm& norm = weights_.layers[layer].norm(role);
  if (norm.weight == nullptr) return;
  const Peer& peer = decoder_.peer_;
  const int64_t dim = config_.norm_within_size(config_.layers[layer], role);
  NormalizeArgs args{.dtype = weights_.dtype,
                     .x = x,
                     .ld = dim,
                     .weight = norm.weight,
                     .weight_offset = config_.norm_weight_offset,
                     .eps = config_.norm_eps,
                     .m = num_rows_,
                     .dim = dim};
  if (peer) {
    SumSquaresOverPeers(x, dim, dim, 0);
    args.square_sums = buffers_.square_sums;
    args.whole_dim = dim * peer.peers->size();
  }
  kernels::cuda::Normalize(args, stream_);
}

void CudaDecoder::Ops::SumSquaresOverPeers(const void* x, int64_t ld, int64_t first,
                                           int64_t second) const {
  SquareSums({.dtype = weights_.dtype,
              .x = x,
              .ld = ld,
              .m = num_rows_,
              .dims = {first, second},
              .sums = buffers_.square_sums},
             stream_);
  const Peer& peer = decoder_.peer_;
  peer.peers->Sum(peer.rank, buffers_.square_sums, RoundUp8(2 * num_rows_), DType::kFloat32,
                  buffers_.square_parts, stream_);
}

AttentionArgs CudaDecoder::Ops::MakeAttentionArgs(size_t layer) const {
  return {.dtype = weights_.dtype,
          .q = Qkv(layer),
          .ldq = QkvRow(config_, config_.layers[layer]),
          .out = attention_,
          .ldo = AttentionSize(config_, config_.layers[layer]),
          .q_heads = config_.heads_of(config_.layers[layer]),
          .scale = config_.attention_scale,
          .soft_cap = config_.attention_soft_cap,
          .window = config_.layers[layer].window,
          .bias = weights_.distance_bias,
          .sinks = weights_.layers[layer].vector(VectorRole::kSinks),
          .block_tables = batch_.block_tables,
          .ld_block_tables = batch_.ld_block_tables};
}

// Whether the tensor cores can do it; rows are computed one by one where they cannot.
bool CudaDecoder::Ops::HasTiles(size_t layer) const {
  constexpr int64_t kTensorCoreK = 16;
  if (config_.key_choice) return false;  // each row has keys of its own
  if (weights_.distance_bias) return false;
  const int64_t head_dim = config_.head_dim_of(config_.layers[layer]);
  return weights_.dtype != DType::kFloat32 && !has_kept_rows() &&
         (config_.latent || head_dim % kTensorCoreK == 0) && TileRows(config_) > 0;
}

int64_t CudaDecoder::TileRows(const ModelConfig& config) {
  if (config.latent) return kLatentTileRows;
  int64_t rows = std::numeric_limits<int64_t>::max();
  for (const LayerConfig& layer : config.layers) {
    rows = std::min(rows, PrefillTileRows(config.heads_of(layer), config.kv_heads_of(layer),
                                          config.head_dim_of(layer)));
    if (layer.window.is_chunk) rows = std::min(rows, layer.window.size);
  }
  return rows;
}

void CudaDecoder::Ops::Attend(size_t layer) {
  const bool has_tiles = HasTiles(layer);
  const int64_t single_rows = has_tiles ? batch_.num_decode_rows : num_rows_;
  // Other rows than the batch's decode rows are not counted in its splits.
  const bool is_counted = single_rows == batch_.num_decode_rows && !has_kept_rows();
  const int64_t at_once = decoder_.DecodeRowsAtOnce(is_counted ? batch_ : CudaBatch());
  for (int64_t row = 0; row < single_rows; row += at_once) {
    AttendDecode(layer, row, std::min(at_once, single_rows - row));
  }
  if (has_tiles && batch_.num_tiles > 0) {
    PrefillAttention(decoder_.kv_[layer], MakeAttentionArgs(layer), batch_.tiles, batch_.num_tiles,
                     stream_);
  }
  if (config_.gates_attention()) GateAttention(layer);
}

// The splits are the same in all layers with a window, so only the first of them lists them, unless
// the rows take several calls.
void CudaDecoder::Ops::AttendDecode(size_t layer, int64_t first, int64_t num_rows) {
  AttentionArgs args = MakeAttentionArgs(layer);
  args.q = Advance(args.q, first * args.ldq, weights_.dtype);
  args.out = Advance(args.out, first * args.ldo, weights_.dtype);
  const auto window = static_cast<size_t>(std::ranges::lower_bound(decoder_.windows_, args.window) -
                                          decoder_.windows_.begin());
  const int32_t* lengths = rows_.lengths;
  if (config_.key_choice) {
    lengths = buffers_.num_chosen;
    args.ld_chosen = config_.key_choice->num_chosen;
    args.chosen = buffers_.chosen + first * args.ld_chosen;
  }
  const bool sees_more = config_.sight != RowSight::kBefore;
  DecodeRows rows{.lengths = lengths + first,
                  .positions = sees_more ? rows_.positions + first : nullptr,
                  .tables = rows_.tables + first,
                  .m = num_rows,
                  .max_splits = decoder_.max_splits_,
                  .most_heads = config_.most_heads(),
                  .workspace = buffers_.decode};
  rows.splits =
      static_cast<std::byte*>(buffers_.splits) + window * DecodeSplitsBytes(rows.max_splits);
  if (listed_[window] != first) {
    ListSplits(rows, args.window, stream_);
    listed_[window] = first;
  }
  DecodeAttention(decoder_.kv_[layer], args, rows, stream_);
}

}  // namespace mlc_native
