// Rows of arch_table.cc: Gemma 4, whose layers have sizes of their own (ReadLayerSizes), and may
// have experts beside the block that every row passes.
#pragma once

#include "arch/expert_rows.h"
#include "arch/tensor_names.h"

namespace mlc_native {

inline constexpr NormName kNormOfValues[] = {{"", NormRole::kV}};
inline constexpr NormName kNormOfLayerInputs[] = {
    {"post_per_layer_input_norm", NormRole::kPostLayerInput}};
inline constexpr NormName kNormsBesideExperts[] = {
    {"router", NormRole::kRouter, ".scale"},
    {"pre_feedforward_layernorm_2", NormRole::kPreExperts},
    {"post_feedforward_layernorm_2", NormRole::kPostExperts},
    {"post_feedforward_layernorm_1", NormRole::kPostShared},
};
inline constexpr auto kGemma4Norms =
    Join(kSandwichNorms, kQkNorms, kNormOfValues, kNormOfLayerInputs);
inline constexpr auto kGemma4ExpertNorms =
    Join(kSandwichNorms, kQkNorms, kNormOfValues, kNormOfLayerInputs, kNormsBesideExperts);
inline constexpr ProjectionName kLayerInputs[] = {
    {"per_layer_input_gate", LinearRole::kLayerInputGate, Rows::kLayerInput},
    {"per_layer_projection", LinearRole::kLayerInputUp, Rows::kHidden},
};
inline constexpr auto kGemma4Projections = Join(kSeparateQkv, kOut, kSeparateFfn, kLayerInputs);
inline constexpr ProjectionName kGemma4Shared[] = {
    {"mlp.gate_proj", LinearRole::kSharedGateUp, Rows::kSharedFfn},
    {"mlp.up_proj", LinearRole::kSharedGateUp, Rows::kSharedFfn},
    {"mlp.down_proj", LinearRole::kSharedDown, Rows::kHidden},
    {"router.proj", LinearRole::kRouter, Rows::kExperts},
};
inline constexpr ProjectionName kGemma4Joined[] = {
    {"experts.gate_up_proj", LinearRole::kExpertGateUp, Rows::kExpertGateUp, ""},
    {"experts.down_proj", LinearRole::kExpertDown, Rows::kHidden, ""},
};
inline constexpr auto kGemma4JoinedExperts = Join(kGemma4Shared, kGemma4Joined);
inline constexpr auto kGemma4EachExpert = Join(kGemma4Shared, kEachExpert);  // of GGUF files
inline constexpr ExpertSpelling kGemma4Spellings[] = {{kGemma4JoinedExperts}, {kGemma4EachExpert}};
inline constexpr VectorName kGemma4Vectors[] = {
    {"layer_scalar", VectorRole::kLayerScale},
    {"router.per_expert_scale", VectorRole::kExpertScales},
};

inline constexpr std::string_view kGemma4Parts[] = {
    "model.vision_tower.", "model.vision_embedder.", "model.embed_vision.",
    "model.audio_tower.",  "model.embed_audio.",
};

inline constexpr std::string_view kGemma4Rope =
    R"({"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                           "rope_theta": 1000000.0}})";

// ---- Rows ----

constexpr ArchSpec Gemma4(std::string_view architecture) {
  return {
      .architecture = architecture,
      .projections = kGemma4Projections,
      .norms = kGemma4ExpertNorms,
      .vectors = kGemma4Vectors,
      .qk_norm = QkNorm::kPerHead,
      .qkv_bias = kAttentionBias,
      .out_bias = kAttentionBias,
      .activation_field = "hidden_activation",
      .default_activation = "gelu_pytorch_tanh",
      .multipliers = {.sqrt_hidden_size = true, .plain_attention = true},
      .reads_final_soft_cap = true,
      .proportional_rope = true,
      .window_rule = WindowRule::kEveryButNth,
      .local_rope = true,
      .last_has_no_window = true,
      .reads_layer_inputs = true,
      .reads_layer_sizes = true,
      .shares_last_keys = true,
      .experts = {.enabled_by = "enable_moe_block",
                  .num_experts = "num_experts",
                  .num_chosen = "top_k_experts",
                  .ffn_size = "moe_intermediate_size",
                  .shared_size = "intermediate_size",
                  .spellings = kGemma4Spellings,
                  .absent = {.renormalize = true}},
      .defaults = {.vocab_size = 262144,
                   .num_attention_heads = 8,
                   .num_key_value_heads = 4,
                   .head_dim = 256,
                   .max_position_embeddings = 131072,
                   .rope_parameters = kGemma4Rope,
                   .sliding_window = 512,
                   .sliding_window_pattern = 6,
                   .tie_word_embeddings = true},
  };
}

constexpr ArchSpec Gemma4Unified(std::string_view architecture) {
  ArchSpec spec = Gemma4(architecture);
  spec.norms = kGemma4Norms;
  spec.reads_layer_inputs = false;
  spec.experts = {};
  spec.defaults.max_position_embeddings = 262144;
  spec.defaults.sliding_window = 1024;
  return spec;
}

// The text model of one with images.
constexpr ArchSpec WithGemma4Parts(ArchSpec spec) {
  spec.config_section = "text_config";
  spec.ignored_prefixes = kGemma4Parts;
  return spec;
}

inline constexpr ArchSpec kGemma4Rows[] = {
    Gemma4("Gemma4ForCausalLM"),
    WithGemma4Parts(Gemma4("Gemma4ForConditionalGeneration")),
    Gemma4Unified("Gemma4UnifiedForCausalLM"),
    WithGemma4Parts(Gemma4Unified("Gemma4UnifiedForConditionalGeneration")),
};

}  // namespace mlc_native
