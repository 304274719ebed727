// Latent attention on the CPU's kernels: from the latents to the queries, keys and values that
// attention reads, and from its output to the values that the linear behind it reads.
#include "models/transformer_ops.h"

namespace mlc_native {

kernels::NormalizeArgs Transformer::Ops::LatentNorm(size_t layer, NormRole role, int64_t column,
                                                    int64_t dim) const {
  const Activations x{.data = buffers_.latents.data + column, .width = buffers_.latents.width};
  kernels::NormalizeArgs norm = Norm(x, model_.weights_.layers[layer].norm(role).weight, x);
  norm.eps = kLatentNormEps;
  norm.dim = dim;
  return norm;
}

void Transformer::Ops::RunHeads(std::span<const kernels::PackedLinear> weights,
                                const kernels::HeadLinearArgs& args) {
  if (model_.observer_ != nullptr) {
    for (size_t head = 0; head < weights.size(); ++head) {
      const float* const x = args.x + static_cast<int64_t>(head) * args.x_step;
      Observe(weights[head], {.x = x, .ldx = args.ldx, .m = num_rows_});
    }
  }
  kernels::HeadLinears(model_.cpu_, weights, args, remembered_.span());
  remembered_.Clear();
}

void Transformer::Ops::MakeHeads(size_t layer, RowSteps* steps) {
  const LatentConfig& latent = *config_.latent;
  remembered_.Add(LatentNorm(layer, NormRole::kK, config_.query_latent_size(), latent.kv_rank));
  Activations queries = buffers_.latents;
  if (latent.q_rank > 0) {
    remembered_.Add(LatentNorm(layer, NormRole::kQ, 0, latent.q_rank));
    queries = buffers_.queries;
    RunLinear(LayerLinear{layer, LinearRole::kQueryUp}, buffers_.latents, queries);
  }
  RunHeads(model_.head_matrices_[layer].keys, {.x = queries.data,
                                               .ldx = queries.width,
                                               .x_step = latent.query_dim(),
                                               .m = num_rows_,
                                               .y = buffers_.qkv.data + latent.rope_dim,
                                               .ldy = buffers_.qkv.width,
                                               .y_step = config_.head_dim,
                                               .workspace = buffers_.linear_inputs.data});
  for (const HeadPart& part : model_.head_parts_) {
    const Activations& from = part.rows == LatentRows::kQueries ? queries : buffers_.latents;
    const bool is_zero = part.rows == LatentRows::kZeros;
    const bool is_query = part.to < config_.q_size();
    steps->Add(kernels::MoveHeadsArgs{.from = is_zero ? nullptr : from.data + part.from,
                                      .ld_from = from.width,
                                      .from_step = part.from_step,
                                      .to = buffers_.qkv.data + part.to,
                                      .ld_to = buffers_.qkv.width,
                                      .to_step = config_.head_dim,
                                      .m = num_rows_,
                                      .heads = is_query ? config_.num_heads : config_.num_kv_heads,
                                      .n = part.n});
  }
}

void Transformer::Ops::MakeValues(size_t layer) {
  const Activations& x = buffers_.attention;
  RunHeads(model_.head_matrices_[layer].values, {.x = x.data,
                                                 .ldx = x.width,
                                                 .x_step = config_.head_dim,
                                                 .m = num_rows_,
                                                 .y = buffers_.values.data,
                                                 .ldy = buffers_.values.width,
                                                 .y_step = config_.latent->value_dim,
                                                 .workspace = buffers_.linear_inputs.data});
}

}  // namespace mlc_native
