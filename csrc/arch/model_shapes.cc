// The sizes of a decoder's parameters, and what is scaled by their type.
#include <algorithm>
#include <cmath>

#include "arch/model_config.h"
#include "support/half.h"

namespace mlc_native {
namespace {

float RoundedTo(DType type, float value) {
  float rounded = 0;
  StoreElement(type, &rounded, 0, value);
  return LoadElement(type, &rounded, 0);
}

}  // namespace

int64_t ModelConfig::recurrent_inputs_size() const {
  if (mamba) return mamba->inputs_size();
  if (scan) return scan->inputs_size();
  return delta ? delta->inputs_size() : convolution ? 3 * convolution->channels : 0;
}

int64_t ModelConfig::recurrent_outputs_size() const {
  if (mamba) return mamba->values_size();
  if (scan) return scan->channels;
  return delta ? delta->values_size() : convolution ? convolution->channels : 0;
}

bool ModelConfig::has_equal_layers() const {
  return std::ranges::all_of(layers, &LayerConfig::has_usual_sizes);
}

size_t ModelConfig::last_writer() const {
  size_t last = layers.size() - 1;
  while (!layers[last].is_recurrent && !layers[last].has_own_kv()) --last;
  return last;
}

int64_t ModelConfig::num_linears(const LayerConfig& layer, LinearRole role) const {
  switch (role) {
    case LinearRole::kQkv:
    case LinearRole::kOut:
      return layer.attends() ? 1 : 0;
    case LinearRole::kDeltaInputs:
    case LinearRole::kDeltaOut:
      return layer.is_recurrent ? 1 : 0;
    case LinearRole::kDeltaGates:
      return layer.is_recurrent && delta ? 1 : 0;
    case LinearRole::kDeltaDecays:
    case LinearRole::kDeltaOutGates:
      return layer.is_recurrent && delta && delta->decays_channels() ? 1 : 0;
    case LinearRole::kScanInputs:
    case LinearRole::kScanSteps:
      return layer.is_recurrent && scan ? 1 : 0;
    case LinearRole::kGateUp:
    case LinearRole::kDown:
      return layer.has_dense_ffn() ? 1 : 0;
    case LinearRole::kRouter:
      return layer.has_experts ? 1 : 0;
    case LinearRole::kExpertGateUp:
    case LinearRole::kExpertDown:
      return layer.has_experts ? experts->router.num_experts : 0;
    case LinearRole::kSharedGateUp:
    case LinearRole::kSharedDown:
      return layer.has_experts && experts->shared_ffn_size > 0 ? 1 : 0;
    case LinearRole::kExpertsIn:
    case LinearRole::kExpertsOut:
      return layer.has_experts && experts->latent_size > 0 ? 1 : 0;
    case LinearRole::kQueryUp:
      return (compression || (latent && latent->q_rank > 0)) && layer.attends() ? 1 : 0;
    case LinearRole::kHeadKeyUp:
    case LinearRole::kHeadValueUp:
      return latent && layer.attends() ? num_heads : 0;
    case LinearRole::kIndexKeys:
      return layer.chooses_keys ? 1 : 0;
    case LinearRole::kIndexQueries:
    case LinearRole::kIndexWeights:
      return layer.chooses_keys || layer.chooses_entries ? 1 : 0;
    case LinearRole::kTokenRows:
      return layer.tokens_per_entry > 0 ? 1 : 0;
    case LinearRole::kGroupOut:
      return compression ? compression->out_groups : 0;
    case LinearRole::kLayerInputGate:
    case LinearRole::kLayerInputUp:
      return layer_inputs ? 1 : 0;
    case LinearRole::kLaurelDown:
    case LinearRole::kLaurelUp:
      return laurel_rank > 0 ? 1 : 0;
  }
  return 0;
}

int64_t ModelConfig::linear_rows(const LayerConfig& layer, LinearRole role) const {
  switch (role) {
    case LinearRole::kQkv:
      if (latent) return latent_size();
      if (compression) return compression->q_rank + kv_size(layer);
      return attention_gates_size(layer) + qkv_size(layer) -
             (layer.keys_are_values ? kv_size(layer) : 0);
    case LinearRole::kGateUp:
      return (arch->plain_ffn ? 1 : 2) * ffn_size_of(layer);
    case LinearRole::kOut:
    case LinearRole::kDown:
    case LinearRole::kSharedDown:
    case LinearRole::kExpertsOut:
    case LinearRole::kDeltaOut:
    case LinearRole::kLayerInputUp:
    case LinearRole::kLaurelUp:
      return hidden_size;
    case LinearRole::kLaurelDown:
      return laurel_rank;
    case LinearRole::kExpertDown:
    case LinearRole::kExpertsIn:
      return expert_input_size();
    case LinearRole::kLayerInputGate:
      return layer_inputs->size;
    case LinearRole::kDeltaInputs:
      return recurrent_inputs_size();
    case LinearRole::kDeltaGates:
      return delta ? delta->gates_size() : 0;
    case LinearRole::kDeltaDecays:
      return delta ? delta->decays_size() : 0;
    case LinearRole::kDeltaOutGates:
      return delta ? delta->values_size() : 0;
    case LinearRole::kScanInputs:
      return scan ? scan->step_inputs_size() : 0;
    case LinearRole::kScanSteps:
      return scan ? scan->channels : 0;
    case LinearRole::kRouter:
      return experts->router_rows();
    case LinearRole::kExpertGateUp:
      return (arch->plain_ffn ? 1 : 2) * experts->ffn_size;
    case LinearRole::kSharedGateUp:
      return (arch->plain_ffn ? 1 : 2) * experts->shared_ffn_size;
    case LinearRole::kQueryUp:
      return query_up_size();
    case LinearRole::kHeadKeyUp:
      return latent->kv_rank;
    case LinearRole::kHeadValueUp:
      return latent->value_dim;
    case LinearRole::kIndexQueries:
      return index().queries_size();
    case LinearRole::kIndexKeys:
      return index().head_dim;
    case LinearRole::kIndexWeights:
      return index().num_heads;
    case LinearRole::kTokenRows:
      return token_row_size(layer);
    case LinearRole::kGroupOut:
      return compression->out_rank;
  }
  return 0;
}

int64_t ModelConfig::linear_columns(const LayerConfig& layer, LinearRole role) const {
  switch (role) {
    case LinearRole::kQkv:
      return attends_to_joined() ? 2 * hidden_size : hidden_size;
    case LinearRole::kGateUp:
    case LinearRole::kRouter:
    case LinearRole::kSharedGateUp:
    case LinearRole::kExpertsIn:
    case LinearRole::kDeltaInputs:
    case LinearRole::kDeltaGates:
    case LinearRole::kLayerInputGate:
    case LinearRole::kLaurelDown:
    case LinearRole::kIndexKeys:
    case LinearRole::kIndexWeights:
    case LinearRole::kTokenRows:
      return hidden_size;
    case LinearRole::kGroupOut:
      return q_size(layer) / compression->out_groups;
    case LinearRole::kLaurelUp:
      return laurel_rank;
    case LinearRole::kExpertGateUp:
    case LinearRole::kExpertsOut:
      return expert_input_size();
    case LinearRole::kDeltaOut:
      return recurrent_outputs_size();
    case LinearRole::kDeltaDecays:
    case LinearRole::kDeltaOutGates:
      return delta ? delta->gate_rank : 0;
    case LinearRole::kScanInputs:
      return scan ? scan->channels : 0;
    case LinearRole::kScanSteps:
      return scan ? scan->rank : 0;
    case LinearRole::kLayerInputUp:
      return layer_inputs->size;
    case LinearRole::kOut:
      return values_size(layer);
    case LinearRole::kDown:
      return ffn_size_of(layer);
    case LinearRole::kExpertDown:
      return experts->ffn_size;
    case LinearRole::kSharedDown:
      return experts->shared_ffn_size;
    case LinearRole::kQueryUp:
    case LinearRole::kIndexQueries:
      return compression ? compression->q_rank : latent->q_rank;
    case LinearRole::kHeadValueUp:
      return latent->kv_rank;
    case LinearRole::kHeadKeyUp:
      return latent->plain_dim;
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
    case LinearRole::kSharedGateUp:
    case LinearRole::kSharedDown:
    case LinearRole::kExpertsIn:
    case LinearRole::kExpertsOut:
      return ffn_bias;
    case LinearRole::kRouter:
    case LinearRole::kExpertGateUp:
    case LinearRole::kExpertDown:
      return experts->biases;
    case LinearRole::kDeltaInputs:
    case LinearRole::kDeltaOut:
      return scan && scan->biases;
    default:
      return false;
  }
}

bool ModelConfig::has_norm(const LayerConfig& layer, NormRole role) const {
  if (std::ranges::find(norms(), role, &NormName::role) == norms().end()) return false;
  if (role == NormRole::kQ && latent) return latent->q_rank > 0 && layer.attends();
  if (role == NormRole::kPostLayerInput) return layer_inputs.has_value();
  if (role == NormRole::kIndexKeys) return layer.chooses_keys;
  if (role == NormRole::kQueryHeads) return layer.attends();
  if (role == NormRole::kEntries) return layer.tokens_per_entry > 0;
  if (role == NormRole::kIndexEntries) return layer.chooses_entries;
  if (IsOfExpertsBeside(role)) return layer.has_experts;
  if (role == NormRole::kAttentionOut) return layer.attends();
  if (role == NormRole::kFfnDown) return layer.has_dense_ffn();
  if (arch->norms_follow_states) {
    const bool is_pre = role == NormRole::kPreAttention || role == NormRole::kPreFfn;
    const bool is_post = role == NormRole::kPostAttention || role == NormRole::kPostFfn;
    if (is_pre || is_post) return is_pre == layer.is_recurrent;
  }
  const bool is_of_kv = role == NormRole::kK || role == NormRole::kV;
  if (is_of_kv ? !layer.has_own_kv() : role == NormRole::kQ && !layer.attends()) return false;
  if (role == NormRole::kQ || role == NormRole::kK) {
    return qk_norm != QkNorm::kNone &&
           (!arch->qk_norm_needs_rope || layer.rope != LayerConfig::kNoRope);
  }
  if (role == NormRole::kPreFfn) return !parallel_blocks || arch->has_parallel_norms;
  if (role == NormRole::kPostAttention || role == NormRole::kPostFfn) return has_post_norms;
  return role != NormRole::kPreAttention || !draft_head || draft_head->layout->has_attention_norm;
}

bool ModelConfig::has_norms_within() const {
  return std::ranges::any_of(arch->norms, [](const NormName& norm) {
    return norm.role == NormRole::kAttentionOut || norm.role == NormRole::kFfnDown;
  });
}

std::vector<int64_t> ModelConfig::norm_shape(const LayerConfig& layer, NormRole role) const {
  if (role == NormRole::kV) return {head_dim_of(layer)};
  if (role == NormRole::kIndexKeys || role == NormRole::kIndexEntries) return {index().head_dim};
  if (role == NormRole::kQueryHeads || role == NormRole::kEntries) return {head_dim};
  if (role == NormRole::kAttentionOut || role == NormRole::kFfnDown) {
    return {norm_within_size(layer, role)};
  }
  if (role != NormRole::kQ && role != NormRole::kK) return {hidden_size};
  const int64_t heads = role == NormRole::kQ ? heads_of(layer) : kv_heads_of(layer);
  const int64_t size = head_dim_of(layer);
  switch (qk_norm) {
    case QkNorm::kWholeProjection:
      return {heads * size};
    case QkNorm::kPerHeadOwnWeight:
      return {heads, size};
    case QkNorm::kLatents:
      if (compression) return {role == NormRole::kQ ? compression->q_rank : size};
      return {role == NormRole::kQ ? latent->q_rank : latent->kv_rank};
    case QkNorm::kPerHead:
    case QkNorm::kNone:
      break;
  }
  return {size};
}

std::vector<float> ModelConfig::QueryScales(int64_t num_positions) const {
  std::vector<float> scales;
  for (int64_t p = 0; query_scaling.strength != 0 && p < num_positions; ++p) {
    const int64_t periods = (p + query_scaling.first) / query_scaling.period;
    scales.push_back(1.0f + query_scaling.strength * std::log(1.0f + static_cast<float>(periods)));
  }
  return scales;
}

// Gemma's scales are numbers of the weights' type in transformers.
float ModelConfig::EmbeddingScale(DType weights) const {
  return arch->multipliers.sqrt_hidden_size ? RoundedTo(weights, embedding_scale) : embedding_scale;
}

std::optional<int64_t> ModelConfig::max_whole_rows() const {
  if (sight != RowSight::kOfImages) return std::nullopt;
  int64_t most = max_positions;
  for (const LayerConfig& layer : layers) {
    if (layer.window.size > 0) most = std::min(most, layer.window.size);
  }
  return most;
}

bool ModelConfig::has_row_positions() const {
  return !ropes.empty() && std::ranges::all_of(ropes, [](const RopeConfig& rope) {
    return !rope.components.empty();
  });
}

// What transformers multiplies before rows take the places of tokens, they have in them already.
float ModelConfig::InputScale() const {
  const Multipliers& multipliers = arch->multipliers;
  const bool of_tokens_only =
      multipliers.sqrt_hidden_size || multipliers.of_minicpm || multipliers.of_tokens_only;
  return of_tokens_only ? 1 / residual_scale : embedding_scale;
}

float ModelConfig::LayerInputScale(DType weights) const {
  return RoundedTo(weights, std::sqrt(static_cast<float>(layer_inputs->size))) * kRootOfHalf;
}

}  // namespace mlc_native
