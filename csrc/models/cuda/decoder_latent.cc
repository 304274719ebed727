// CudaDecoder: latent attention, as launches of the CUDA kernels: from the latents to queries and
// to the keys of the pages, and from attention's output to the values that the linear behind it
// reads (latent_heads.h).
#include "kernels/cuda/latent.h"
#include "models/cuda/decoder_ops.h"

namespace mlc_native {

using namespace kernels::cuda;  // NOLINT: the vocabulary of this file

void CudaDecoder::Ops::NormalizeQueryLatents(size_t layer) const {
  kernels::cuda::Normalize({.dtype = weights_.dtype,
                            .x = buffers_.latents,
                            .ld = LatentRow(config_),
                            .weight = weights_.layers[layer].norm(NormRole::kQ).weight,
                            .weight_offset = config_.norm_weight_offset,
                            .eps = kLatentNormEps,
                            .m = num_rows_,
                            .dim = config_.latent->q_rank},
                           stream_);
}

void CudaDecoder::Ops::ProjectHeads(size_t layer, LinearRole role, const RowsOfHeads& x,
                                    const RowsOfHeads& y) const {
  // More rows are worth a launch for each head.
  constexpr int64_t kMostGrouped = 512;
  const auto& weights = weights_.layers[layer];
  GemvArgs head = LinearArgs(weights.linear(role), x.data, y.data);
  head.ldx = x.ld;
  head.ldy = y.ld;
  if (num_rows_ <= kMostGrouped) {
    return GroupedGemv({.first = head,
                        .weight_stride = StridesOf(weights, role).matrix,
                        .num_groups = config_.num_heads,
                        .x_step = x.step,
                        .y_step = y.step},
                       stream_);
  }
  for (int i = 0; i < config_.num_heads; ++i) {
    head.weight = weights.linear(role, i).matrix.data;
    head.x = Advance(x.data, i * x.step, weights_.dtype);
    head.y = Advance(y.data, i * y.step, weights_.dtype);
    LaunchLinear(head);
  }
}

void CudaDecoder::Ops::WriteLatents(size_t layer) const {
  const LatentConfig& latent = *config_.latent;
  const int64_t kv_latent = config_.query_latent_size();
  const DType dtype = weights_.dtype;
  RowsOfHeads queries{buffers_.latents, LatentRow(config_), latent.query_dim()};
  if (latent.q_rank > 0) {
    NormalizeQueryLatents(layer);
    queries = {buffers_.queries, config_.query_up_size(), latent.query_dim()};
    constexpr auto kRole = LinearRole::kQueryUp;
    LayerProduct up{
        layer, kRole,
        LinearArgs(weights_.layers[layer].linear(kRole), buffers_.latents, buffers_.queries)};
    up.args.ldx = LatentRow(config_);
    LaunchLinear(up);
  }
  ProjectHeads(layer, LinearRole::kHeadKeyUp, queries,
               {Advance(buffers_.qkv, latent.rope_dim, dtype), config_.q_size(), config_.head_dim});
  const RopeOfLayer rope = RopeOf(layer);
  kernels::cuda::WriteLatents(decoder_.kv_[layer],
                              {.dtype = dtype,
                               .queries = Advance(queries.data, latent.plain_dim, dtype),
                               .ld_queries = queries.ld,
                               .query_step = queries.step,
                               .latents = Advance(buffers_.latents, kv_latent, dtype),
                               .ld_latents = LatentRow(config_),
                               .norm = weights_.layers[layer].norm(NormRole::kK).weight,
                               .weight_offset = config_.norm_weight_offset,
                               .eps = kLatentNormEps,
                               .q = buffers_.qkv,
                               .ldq = config_.q_size(),
                               .q_heads = config_.num_heads,
                               .m = num_rows_,
                               .rotary_dim = rope.rotary_dim,
                               .positions = batch_.positions,
                               .slots = batch_.slots,
                               .cos = rope.tables.cos,
                               .sin = rope.tables.sin,
                               .interleaved = config_.arch->interleaved_rope,
                               .q_scales = weights_.query_scales},
                              stream_);
}

// In the memory of the queries, which nothing reads any more.
const void* CudaDecoder::Ops::MakeValues(size_t layer) const {
  ProjectHeads(layer, LinearRole::kHeadValueUp,
               {attention_, AttentionSize(config_, config_.layers[layer]), config_.latent->kv_rank},
               {buffers_.qkv, config_.values_size(), config_.latent->value_dim});
  return buffers_.qkv;
}

}  // namespace mlc_native
