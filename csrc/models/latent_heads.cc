#include "models/latent_heads.h"

namespace mlc_native {

std::vector<HeadPart> HeadPartsOf(const ModelConfig& config) {
  if (!config.latent) return {};
  const LatentConfig& latent = *config.latent;
  const LatentRows queries = latent.q_rank > 0 ? LatentRows::kQueries : LatentRows::kLatents;
  const int64_t kv_latent = config.query_latent_size();
  const int64_t k = config.q_size();
  const int64_t v = k + config.kv_size();
  std::vector<HeadPart> parts = {
      {queries, latent.plain_dim, latent.query_dim(), 0, latent.rope_dim},
      {LatentRows::kLatents, kv_latent + latent.kv_rank, 0, k, latent.rope_dim},
      {LatentRows::kLatents, kv_latent, 0, k + latent.rope_dim, latent.kv_rank},
      {LatentRows::kLatents, kv_latent, 0, v, latent.kv_rank},
  };
  if (!config.key_choice) {
    parts.push_back({LatentRows::kZeros, 0, 0, v + latent.kv_rank, latent.rope_dim});
  }
  return parts;
}

}  // namespace mlc_native
