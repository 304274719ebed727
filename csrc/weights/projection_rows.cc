#include "weights/projection_rows.h"

namespace mlc_native {

int64_t RowsOfProjection(const ModelConfig& config, const LayerConfig& layer, Rows rows) {
  switch (rows) {
    case Rows::kQ:
      return config.q_size(layer);
    case Rows::kKv:
    case Rows::kValues:
      return config.kv_size(layer);
    case Rows::kQkv:
    case Rows::kQkvOfGroups:
      return config.qkv_size(layer);
    case Rows::kHidden:
      return config.hidden_size;
    case Rows::kFfn:
      return config.ffn_size_of(layer);
    case Rows::kGateUp:
      return 2 * config.ffn_size_of(layer);
    case Rows::kExperts:
      return config.experts->router.num_experts;
    case Rows::kOne:
      return 1;
    case Rows::kExpertFfn:
      return config.experts->ffn_size;
    case Rows::kExpertGateUp:
      return 2 * config.experts->ffn_size;
    case Rows::kSharedFfn:
      return config.experts->shared_ffn_size;
    case Rows::kSharedGateUp:
      return 2 * config.experts->shared_ffn_size;
    case Rows::kQueryLatent:
      return config.query_latent_size();
    case Rows::kKeyValueLatent:
      return config.latent->kv_rank + config.latent->rope_dim;
    case Rows::kQueryUp:
      return config.query_up_size();
    case Rows::kKeyValueUp:
      return config.key_value_up_size();
    case Rows::kGatedQ:
      return 2 * config.q_size();
    case Rows::kDeltaQkv:
      return config.delta->conv_size();
    case Rows::kDeltaValues:
      return config.delta->values_size();
    case Rows::kDeltaHeads:
      return config.delta->num_value_heads;
    case Rows::kDeltaInputsOfGroups:
      return config.delta->inputs_size();
    case Rows::kDeltaGatesOfGroups:
      return 2 * config.delta->num_value_heads;
    case Rows::kConvolutionInputs:
    case Rows::kMambaInputs:
      return config.recurrent_inputs_size();
    case Rows::kLayerInput:
      return config.layer_inputs->size;
  }
  return 0;
}

std::vector<RunOfGroup> RunsOfGroups(const ModelConfig& config, Rows rows) {
  const int64_t q = config.q_size(), size = config.head_dim;
  switch (rows) {
    case Rows::kQkvOfGroups:
      return {{q / config.num_kv_heads, 0}, {size, q}, {size, q + config.kv_size()}};
    case Rows::kGatedQ:
      return {{size, q}, {size, 0}};  // gates come before the queries
    case Rows::kDeltaInputsOfGroups: {
      const DeltaConfig& delta = *config.delta;
      const int64_t values = delta.values_size() / delta.num_key_heads;
      return {{delta.key_dim, 0},
              {delta.key_dim, delta.keys_size()},
              {values, 2 * delta.keys_size()},
              {values, delta.conv_size()}};
    }
    case Rows::kDeltaGatesOfGroups: {
      const int64_t heads = config.delta->num_value_heads;
      const int64_t values = heads / config.delta->num_key_heads;
      return {{values, 0}, {values, heads}};
    }
    default:
      return {};
  }
}

}  // namespace mlc_native
