// Rows of arch_table.cc: families of which most layers have linear attention (the gated delta
// rule), and the others attention whose output is gated.
#pragma once

#include "arch/dense_rows.h"
#include "arch/expert_rows.h"
#include "arch/tensor_names.h"

namespace mlc_native {

// ---- Names ----

inline constexpr ProjectionName kGatedQkv[] = {
    {"self_attn.q_proj", LinearRole::kQkv, Rows::kGatedQ},
    {"self_attn.k_proj", LinearRole::kQkv, Rows::kKv},
    {"self_attn.v_proj", LinearRole::kQkv, Rows::kKv},
};
inline constexpr ProjectionName kDeltaOut[] = {
    {"linear_attn.out_proj", LinearRole::kDeltaOut, Rows::kHidden}};
inline constexpr ProjectionName kSeparateDelta[] = {
    {"linear_attn.in_proj_qkv", LinearRole::kDeltaInputs, Rows::kDeltaQkv},
    {"linear_attn.in_proj_z", LinearRole::kDeltaInputs, Rows::kDeltaValues},
    {"linear_attn.in_proj_b", LinearRole::kDeltaGates, Rows::kDeltaHeads},
    {"linear_attn.in_proj_a", LinearRole::kDeltaGates, Rows::kDeltaHeads},
};
inline constexpr ProjectionName kFusedDelta[] = {
    {"linear_attn.in_proj_qkvz", LinearRole::kDeltaInputs, Rows::kDeltaInputsOfGroups},
    {"linear_attn.in_proj_ba", LinearRole::kDeltaGates, Rows::kDeltaGatesOfGroups},
};
inline constexpr ProjectionName kSplitDelta[] = {
    {"linear_attn.in_proj_qkv", LinearRole::kDeltaInputs, Rows::kDeltaQkv},
    {"linear_attn.in_proj_z", LinearRole::kDeltaInputs, Rows::kDeltaValues},
    {"linear_attn.in_proj_ba", LinearRole::kDeltaGates, Rows::kDeltaGatesOfGroups},
};
inline constexpr auto kSeparateDeltaProjections =
    Join(kGatedQkv, kOut, kSeparateDelta, kDeltaOut, kSeparateFfn);
inline constexpr auto kFusedDeltaProjections =
    Join(kGatedQkv, kOut, kFusedDelta, kDeltaOut, kSeparateFfn);
inline constexpr auto kSplitDeltaProjections =
    Join(kGatedQkv, kOut, kSplitDelta, kDeltaOut, kSeparateFfn);

inline constexpr VectorName kDeltaVectors[] = {
    {"linear_attn.conv1d.weight", VectorRole::kConvolution},
    {"linear_attn.A_log", VectorRole::kDecay},
    {"linear_attn.dt_bias", VectorRole::kDecayBias},
    {"linear_attn.norm.weight", VectorRole::kDeltaNorm},
};
// The head that guesses further tokens is one of draft_layout.cc.
inline constexpr std::string_view kHybridParts[] = {"visual.", "model.visual.", "mtp."};

// ---- Rows ----

constexpr ArchSpec WithDeltaLayers(std::string_view architecture) {
  return {.architecture = architecture,
          .projections = kSeparateDeltaProjections,
          .norms = kPreNormsQk,
          .ignored_prefixes = kHybridParts,
          .vectors = kDeltaVectors,
          .qk_norm = QkNorm::kPerHead,
          .norm_weight_offset = 1.0f,
          .qkv_bias = kAttentionBias,
          .out_bias = kAttentionBias,
          .reads_partial_rotary_factor = true,
          .reads_mrope = true,
          .has_delta_layers = true,
          .attention_gates = AttentionGates::kOfElements,
          .defaults = {.num_key_value_heads = 4,
                       .head_dim = 256,
                       .max_position_embeddings = 32768,
                       .partial_rotary_factor = 0.25}};
}

constexpr ArchSpec WithDeltaLayersAndExperts(std::string_view architecture) {
  ArchSpec spec = WithDeltaLayers(architecture);
  spec.ffn_size_field = "moe_intermediate_size";
  spec.experts = {.num_experts = "num_experts",
                  .shared_size = "shared_expert_intermediate_size",
                  .shared_gate = true,
                  .spellings = kQwenSharedSpellings,
                  .absent = {.num_experts = 256,
                             .num_chosen = 8,
                             .ffn_size = 512,
                             .shared_size = 512,
                             .renormalize = true}};
  spec.defaults.num_key_value_heads = 2;
  return spec;
}

constexpr ArchSpec WithText(ArchSpec spec) {
  spec.config_section = "text_config";
  return spec;
}

constexpr ArchSpec Qwen3Next() {
  ArchSpec spec = WithDeltaLayersAndExperts("Qwen3NextForCausalLM");
  spec.projections = kFusedDeltaProjections;
  spec.split_projections = kSplitDeltaProjections;
  spec.ffn_size_field = "intermediate_size";
  spec.reads_mrope = false;
  spec.experts.renormalize = "norm_topk_prob";
  spec.experts.layers = SparseLayers::kEveryStep;
  spec.experts.absent.num_experts = 512;
  spec.experts.absent.num_chosen = 10;
  return spec;
}

inline constexpr ArchSpec kHybridRows[] = {
    WithDeltaLayers("Qwen3_5ForCausalLM"),
    WithText(WithDeltaLayers("Qwen3_5ForConditionalGeneration")),
    WithDeltaLayersAndExperts("Qwen3_5MoeForCausalLM"),
    WithText(WithDeltaLayersAndExperts("Qwen3_5MoeForConditionalGeneration")),
    Qwen3Next(),
};

}  // namespace mlc_native
