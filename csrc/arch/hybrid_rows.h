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

// ---- OLMo Hybrid: linear layers have norms in front of their blocks, others behind them ----

inline constexpr ProjectionName kOlmoDelta[] = {
    {"linear_attn.q_proj", LinearRole::kDeltaInputs, Rows::kDeltaKeys},
    {"linear_attn.k_proj", LinearRole::kDeltaInputs, Rows::kDeltaKeys},
    {"linear_attn.v_proj", LinearRole::kDeltaInputs, Rows::kDeltaValues},
    {"linear_attn.g_proj", LinearRole::kDeltaInputs, Rows::kDeltaValues},
    {"linear_attn.b_proj", LinearRole::kDeltaGates, Rows::kDeltaHeads},
    {"linear_attn.a_proj", LinearRole::kDeltaGates, Rows::kDeltaHeads},
    {"linear_attn.o_proj", LinearRole::kDeltaOut, Rows::kHidden},
};
inline constexpr auto kOlmoHybridProjections = Join(kSeparateQkv, kOut, kOlmoDelta, kSeparateFfn);
inline constexpr auto kOlmoHybridNorms = Join(kPreNorms, kPostNorms, kQkNorms);
inline constexpr VectorName kOlmoHybridVectors[] = {
    {"linear_attn.q_conv1d.weight", VectorRole::kConvolution},
    {"linear_attn.k_conv1d.weight", VectorRole::kConvolution},
    {"linear_attn.v_conv1d.weight", VectorRole::kConvolution},
    {"linear_attn.A_log", VectorRole::kDecay},
    {"linear_attn.dt_bias", VectorRole::kDecayBias},
    {"linear_attn.o_norm.weight", VectorRole::kDeltaNorm},
};
// That of the memory of transformers, and those of the first folders.
inline constexpr OtherName kOlmoHybridOtherNames[] = {
    {".q_conv1d.", ".conv1d."},
    {"input_layernorm", "attention_layer_norm"},
    {"post_attention_layernorm", "feedforward_layer_norm"},
};

constexpr ArchSpec OlmoHybrid() {
  return {.architecture = "OlmoHybridForCausalLM",
          .projections = kOlmoHybridProjections,
          .norms = kOlmoHybridNorms,
          .other_names = kOlmoHybridOtherNames,
          .vectors = kOlmoHybridVectors,
          .qk_norm = QkNorm::kWholeProjection,
          .norms_follow_states = true,
          .qkv_bias = kAttentionBias,
          .out_bias = kAttentionBias,
          .rope_rule = RopeRule::kUnlessNull,
          .has_delta_layers = true,
          .is_olmo_delta = true,
          .delta_norm_eps = 1e-5,
          .defaults = {.vocab_size = 100352,
                       .ffn_size = 11008,
                       .num_attention_heads = 30,
                       .max_position_embeddings = 65536}};
}

inline constexpr ArchSpec kHybridRows[] = {
    WithDeltaLayers("Qwen3_5ForCausalLM"),
    WithText(WithDeltaLayers("Qwen3_5ForConditionalGeneration")),
    WithDeltaLayersAndExperts("Qwen3_5MoeForCausalLM"),
    WithText(WithDeltaLayersAndExperts("Qwen3_5MoeForConditionalGeneration")),
    Qwen3Next(),
    OlmoHybrid(),
};

}  // namespace mlc_native
