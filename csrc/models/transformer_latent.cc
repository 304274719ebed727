// Latent attention on the CPU's kernels: from the latents to the heads that attention reads, and
// from its output to the values that the linear behind it reads.
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

void Transformer::Ops::MakeHeads(size_t layer, RowSteps* steps) {
  const LatentConfig& latent = *config_.latent;
  const auto& weights = model_.weights_.layers[layer];
  const int64_t kv_latent = config_.query_latent_size();
  remembered_.Add(LatentNorm(layer, NormRole::kK, kv_latent, latent.kv_rank));
  if (latent.q_rank > 0) {
    remembered_.Add(LatentNorm(layer, NormRole::kQ, 0, latent.q_rank));
    RunLinear(weights.linear(LinearRole::kQueryUp), buffers_.latents, buffers_.queries);
  }
  RunLinear(weights.linear(LinearRole::kKeyValueUp),
            {.data = buffers_.latents.data + kv_latent, .width = buffers_.latents.width},
            buffers_.key_values);
  const auto rows_of = [&](LatentRows rows) {
    switch (rows) {
      case LatentRows::kLatents:
        return buffers_.latents;
      case LatentRows::kQueries:
        return buffers_.queries;
      case LatentRows::kKeyValues:
        return buffers_.key_values;
      case LatentRows::kZeros:
        break;
    }
    return Activations();
  };
  for (const HeadPart& part : model_.head_parts_) {
    const Activations from = rows_of(part.rows);
    steps->Add(
        kernels::MoveHeadsArgs{.from = from.data == nullptr ? nullptr : from.data + part.from,
                               .ld_from = from.width,
                               .from_step = part.from_step,
                               .to = buffers_.qkv.data + part.to,
                               .ld_to = buffers_.qkv.width,
                               .to_step = config_.head_dim,
                               .m = num_rows_,
                               .heads = config_.num_heads,
                               .n = part.n});
  }
}

void Transformer::Ops::RememberValuesAlone() {
  if (config_.latent->value_dim == config_.head_dim) return;
  const Activations& x = buffers_.attention;
  remembered_.Add(kernels::MoveHeadsArgs{.from = x.data,
                                         .ld_from = x.width,
                                         .from_step = config_.head_dim,
                                         .to = x.data,
                                         .ld_to = x.width,
                                         .to_step = config_.latent->value_dim,
                                         .m = num_rows_,
                                         .heads = config_.num_heads,
                                         .n = config_.latent->value_dim});
}

}  // namespace mlc_native
