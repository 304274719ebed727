// CudaDecoder: latent attention, as launches of the CUDA kernels: from the latents to the heads
// that attention reads, and from its output to the values that the linear behind it reads.
#include "models/cuda/decoder_ops.h"

namespace mlc_native {

using namespace kernels::cuda;  // NOLINT: the vocabulary of this file

void CudaDecoder::Ops::NormalizeLatent(size_t layer, NormRole role, int64_t column,
                                       int64_t dim) const {
  kernels::cuda::Normalize({.dtype = weights_.dtype,
                            .x = Advance(buffers_.latents, column, weights_.dtype),
                            .ld = config_.latent_size(),
                            .weight = weights_.layers[layer].norm(role).weight,
                            .weight_offset = config_.norm_weight_offset,
                            .eps = kLatentNormEps,
                            .m = num_rows_,
                            .dim = dim},
                           stream_);
}

void CudaDecoder::Ops::MakeHeads(size_t layer) const {
  const LatentConfig& latent = *config_.latent;
  const auto& weights = weights_.layers[layer];
  const int64_t kv_latent = config_.query_latent_size();
  const auto up = [&](LinearRole role, int64_t column, void* y) {
    GemvArgs args =
        LinearArgs(weights.linear(role), Advance(buffers_.latents, column, weights_.dtype), y);
    args.ldx = config_.latent_size();
    LaunchLinear(args);
  };
  if (latent.q_rank > 0) {
    NormalizeLatent(layer, NormRole::kQ, 0, latent.q_rank);
    up(LinearRole::kQueryUp, 0, buffers_.queries);
  }
  NormalizeLatent(layer, NormRole::kK, kv_latent, latent.kv_rank);
  up(LinearRole::kKeyValueUp, kv_latent, buffers_.key_values);

  MoveHeadsArgs args{.dtype = weights_.dtype,
                     .to = buffers_.qkv,
                     .ld_to = config_.qkv_size(),
                     .to_step = config_.head_dim,
                     .m = num_rows_,
                     .heads = config_.num_heads,
                     .num_parts = 0,
                     .parts = {}};
  for (const mlc_native::HeadPart& part : decoder_.head_parts_) {
    kernels::cuda::HeadPart& to = args.parts[args.num_parts++];
    to = {.from_step = part.from_step, .to = part.to, .n = part.n};
    switch (part.rows) {
      case LatentRows::kLatents:
        to.from = buffers_.latents;
        to.ld_from = config_.latent_size();
        break;
      case LatentRows::kQueries:
        to.from = buffers_.queries;
        to.ld_from = config_.query_up_size();
        break;
      case LatentRows::kKeyValues:
        to.from = buffers_.key_values;
        to.ld_from = config_.key_value_up_size();
        break;
      case LatentRows::kZeros:
        continue;
    }
    to.from = Advance(to.from, part.from, weights_.dtype);
  }
  MoveHeads(args, stream_);
}

// In the memory of q, k and v, which nothing reads any more.
const void* CudaDecoder::Ops::ValuesAlone() const {
  const int64_t values = config_.latent->value_dim;
  if (values == config_.head_dim) return attention_;
  MoveHeads({.dtype = weights_.dtype,
             .to = buffers_.qkv,
             .ld_to = config_.values_size(),
             .to_step = values,
             .m = num_rows_,
             .heads = config_.num_heads,
             .num_parts = 1,
             .parts = {{.from = attention_,
                        .ld_from = config_.q_size(),
                        .from_step = config_.head_dim,
                        .n = values}}},
            stream_);
  return buffers_.qkv;
}

}  // namespace mlc_native
