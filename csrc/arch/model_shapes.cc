// The sizes of a decoder's parameters, and what is scaled by their type.
#include "arch/model_config.h"
#include "support/half.h"

namespace mlc_native {

int64_t ModelConfig::num_linears(const LayerConfig& layer, LinearRole role) const {
  switch (role) {
    case LinearRole::kQkv:
    case LinearRole::kOut:
      return 1;
    case LinearRole::kGateUp:
    case LinearRole::kDown:
      return layer.has_experts ? 0 : 1;
    case LinearRole::kRouter:
      return layer.has_experts ? 1 : 0;
    case LinearRole::kExpertGateUp:
    case LinearRole::kExpertDown:
      return layer.has_experts ? experts->router.num_experts : 0;
    case LinearRole::kSharedGateUp:
    case LinearRole::kSharedDown:
      return layer.has_experts && experts->shared_ffn_size > 0 ? 1 : 0;
  }
  return 0;
}

int64_t ModelConfig::linear_rows(LinearRole role) const {
  switch (role) {
    case LinearRole::kQkv:
      return qkv_size();
    case LinearRole::kGateUp:
      return 2 * ffn_size;
    case LinearRole::kOut:
    case LinearRole::kDown:
    case LinearRole::kExpertDown:
    case LinearRole::kSharedDown:
      return hidden_size;
    case LinearRole::kRouter:
      return experts->router_rows();
    case LinearRole::kExpertGateUp:
      return 2 * experts->ffn_size;
    case LinearRole::kSharedGateUp:
      return 2 * experts->shared_ffn_size;
  }
  return 0;
}

int64_t ModelConfig::linear_columns(LinearRole role) const {
  switch (role) {
    case LinearRole::kQkv:
      return attends_to_joined() ? 2 * hidden_size : hidden_size;
    case LinearRole::kGateUp:
    case LinearRole::kRouter:
    case LinearRole::kExpertGateUp:
    case LinearRole::kSharedGateUp:
      return hidden_size;
    case LinearRole::kOut:
      return q_size();
    case LinearRole::kDown:
      return ffn_size;
    case LinearRole::kExpertDown:
      return experts->ffn_size;
    case LinearRole::kSharedDown:
      return experts->shared_ffn_size;
  }
  return 0;
}

bool ModelConfig::has_bias(LinearRole role) const {
  switch (role) {
    case LinearRole::kQkv:
      return qkv_bias;
    case LinearRole::kOut:
      return out_bias;
    case LinearRole::kGateUp:
    case LinearRole::kDown:
      return ffn_bias;
    default:
      return false;
  }
}

int64_t ModelConfig::norm_size(NormRole role) const {
  const bool whole = arch->qk_norm == QkNorm::kWholeProjection;
  if (role == NormRole::kQ) return whole ? q_size() : head_dim;
  if (role == NormRole::kK) return whole ? kv_size() : head_dim;
  return hidden_size;
}

// Gemma's scale is a number of the weights' type in transformers.
float ModelConfig::EmbeddingScale(DType weights) const {
  if (!arch->multipliers.sqrt_hidden_size) return embedding_scale;
  float rounded = 0;
  StoreElement(weights, &rounded, 0, embedding_scale);
  return LoadElement(weights, &rounded, 0);
}

}  // namespace mlc_native
