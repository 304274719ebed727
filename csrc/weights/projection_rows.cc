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
    case Rows::kQvkOfFour:
      return config.qkv_size(layer);
    case Rows::kHidden:
      return config.hidden_size;
    case Rows::kFfn:
      return config.ffn_size_of(layer);
    case Rows::kGateUp:
    case Rows::kUpGate:
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
    case Rows::kExpertInput:
      return config.expert_input_size();
    case Rows::kQueryLatent:
      return config.query_latent_size();
    case Rows::kKeyValueLatent:
      return config.latent->kv_rank + config.latent->rope_dim;
    case Rows::kQueryUp:
      return config.query_up_size();
    case Rows::kKeyValueUp:
      return config.key_value_up_size();
    case Rows::kIndexQueries:
      return config.index().queries_size();
    case Rows::kIndexKeys:
      return config.index().head_dim;
    case Rows::kIndexWeights:
      return config.index().num_heads;
    case Rows::kEntryChannels:
      return config.entry_channels(layer);
    case Rows::kIndexChannels:
      return config.index_channels();
    case Rows::kGroupOut:
      return config.compression->out_rank;
    case Rows::kGatedQ:
      return 2 * config.q_size(layer);
    case Rows::kAttentionGates:
      return config.attention_gates_size(layer);
    case Rows::kDeltaQkv:
      return config.delta->conv_size();
    case Rows::kDeltaKeys:
      return config.delta->keys_size();
    case Rows::kDeltaValues:
      return config.delta->values_size();
    case Rows::kDeltaHeads:
      return config.delta->num_value_heads;
    case Rows::kDeltaChannels:
      return config.delta->decays_size();
    case Rows::kDeltaRank:
      return config.delta->gate_rank;
    case Rows::kDeltaInputsOfGroups:
      return config.delta->inputs_size();
    case Rows::kDeltaGatesOfGroups:
      return config.delta->gates_size();
    case Rows::kConvolutionInputs:
    case Rows::kMambaInputs:
    case Rows::kScanInputs:
      return config.recurrent_inputs_size();
    case Rows::kScanStepInputs:
      return config.scan->step_inputs_size();
    case Rows::kScanChannels:
      return config.scan->channels;
    case Rows::kLayerInput:
      return config.layer_inputs->size;
    case Rows::kLaurel:
      return config.laurel_rank;
  }
  return 0;
}

std::vector<RunOfGroup> RunsOfGroups(const ModelConfig& config, Rows rows) {
  const int64_t q = config.q_size(), kv = config.kv_size(), size = config.head_dim;
  switch (rows) {
    case Rows::kQkvOfGroups:
      return {{q / config.num_kv_heads, 0}, {size, q}, {size, q + kv}};
    case Rows::kQvkOfFour:
      return {{q / 4, 0}, {kv / 4, q + kv}, {kv / 4, q}};
    case Rows::kGatedQ:
      return {{size, q}, {size, 0}};  // gates come before the queries
    case Rows::kUpGate:               // one group
      return {{config.ffn_size, config.ffn_size}, {config.ffn_size, 0}};
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
    case Rows::kMambaInputs: {
      if (!config.matrix_scales) return {};
      const MambaConfig& mamba = *config.mamba;
      std::vector<RunOfGroup> runs;
      int64_t first = 0;
      for (const int64_t size : {mamba.values_size(), mamba.values_size(), mamba.keys_size(),
                                 mamba.keys_size(), mamba.num_heads}) {
        runs.push_back({size, first, config.matrix_scales->mamba_in[runs.size()]});
        first += size;
      }
      return runs;
    }
    default:
      return {};
  }
}

ScaleOfRows ScaleOfProjection(const ModelConfig& config, const ProjectionName& projection,
                              bool is_first) {
  if (!config.matrix_scales) return {};
  const MatrixScales& scales = *config.matrix_scales;
  const auto both = [](float scale) { return ScaleOfRows{scale, scale}; };
  switch (projection.role) {
    case LinearRole::kQkv:
      if (projection.rows == Rows::kKv) return {scales.attention_in * scales.keys, scales.keys};
      return {.weight = scales.attention_in};
    case LinearRole::kOut:
      return both(scales.attention_out);
    case LinearRole::kDeltaOut:
      return both(scales.mamba_out);
    case LinearRole::kGateUp:
      return is_first ? both(scales.gates) : ScaleOfRows{};
    case LinearRole::kDown:
      return both(scales.down);
    default:
      return {};
  }
}

}  // namespace mlc_native
