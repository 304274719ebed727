#include "models/latent_heads.h"

#include <span>

#include "support/check.h"

namespace mlc_native {
namespace {

std::vector<HeadPart> NotEmpty(std::span<const HeadPart> all) {
  std::vector<HeadPart> parts;
  for (const HeadPart& part : all) {
    if (part.n > 0) parts.push_back(part);
  }
  MLC_CHECK(parts.size() <= kMaxHeadParts);
  return parts;
}

}  // namespace

std::vector<HeadPart> HeadPartsOf(const ModelConfig& config) {
  if (!config.latent) return {};
  const LatentConfig& latent = *config.latent;
  const int64_t query = latent.query_dim();
  const int64_t key_value = latent.plain_dim + latent.value_dim;
  const int64_t rope_of_keys = config.query_latent_size() + latent.kv_rank;
  const LatentRows queries = latent.q_rank > 0 ? LatentRows::kQueries : LatentRows::kLatents;
  const int64_t k = config.q_size();
  const int64_t v = k + config.kv_size();
  if (latent.in_pages) {
    const int64_t kv_latent = config.query_latent_size();
    const HeadPart of_latents[] = {
        {queries, latent.plain_dim, query, 0, latent.rope_dim},
        {LatentRows::kLatents, rope_of_keys, 0, k, latent.rope_dim},
        {LatentRows::kLatents, kv_latent, 0, k + latent.rope_dim, latent.kv_rank},
        {LatentRows::kLatents, kv_latent, 0, v, latent.kv_rank},
        {LatentRows::kZeros, 0, 0, v + latent.kv_rank, latent.rope_dim},
    };
    return NotEmpty(of_latents);
  }
  const HeadPart all[] = {
      {queries, latent.plain_dim, query, 0, latent.rope_dim},
      {queries, 0, query, latent.rope_dim, latent.plain_dim},
      {LatentRows::kZeros, 0, 0, query, config.head_dim - query},
      {LatentRows::kLatents, rope_of_keys, 0, k, latent.rope_dim},
      {LatentRows::kKeyValues, 0, key_value, k + latent.rope_dim, latent.plain_dim},
      {LatentRows::kZeros, 0, 0, k + query, config.head_dim - query},
      {LatentRows::kKeyValues, latent.plain_dim, key_value, v, latent.value_dim},
      {LatentRows::kZeros, 0, 0, v + latent.value_dim, config.head_dim - latent.value_dim},
  };
  return NotEmpty(all);
}

}  // namespace mlc_native
