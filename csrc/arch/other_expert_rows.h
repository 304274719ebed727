// Rows of arch_table.cc: further families with mixtures of experts. Most of them combine what those
// of expert_rows.h have.
#pragma once

#include "arch/expert_rows.h"

namespace mlc_native {

// ---- Names ----

inline constexpr ProjectionName kHunYuanRouter[] = {
    {"mlp.gate.wg", LinearRole::kRouter, Rows::kExperts}};
inline constexpr ProjectionName kHunYuanShared[] = {
    {"mlp.shared_mlp.gate_proj", LinearRole::kSharedGateUp, Rows::kSharedFfn},
    {"mlp.shared_mlp.up_proj", LinearRole::kSharedGateUp, Rows::kSharedFfn},
    {"mlp.shared_mlp.down_proj", LinearRole::kSharedDown, Rows::kHidden},
};
inline constexpr ProjectionName kHy3Router[] = {
    {"mlp.router.gate", LinearRole::kRouter, Rows::kExperts}};
inline constexpr auto kHunYuanEach = Join(kHunYuanRouter, kEachExpert, kHunYuanShared);
inline constexpr auto kHunYuanJoined = Join(kHunYuanRouter, kJoinedExperts, kHunYuanShared);
inline constexpr auto kHy3Each = Join(kHy3Router, kEachExpert, kHunYuanShared);
inline constexpr ExpertSpelling kHunYuanSpellings[] = {{kHunYuanEach}, {kHunYuanJoined}};
inline constexpr ExpertSpelling kHy3Spellings[] = {{kHy3Each, "mlp.expert_bias"},
                                                   {kGlmJoined, "mlp.e_score_correction_bias"}};
// The last spelling is that of GGUF files.
inline constexpr ExpertSpelling kExaoneSpellings[] = {
    {kGlmEach, "mlp.e_score_correction_bias"},
    {kGlmJoined, "mlp.gate.e_score_correction_bias"},
    {kGlmEach, "mlp.gate.e_score_correction_bias"},
};

// The hub has experts as [columns, rows], transformers as it has others.
constexpr ProjectionName TransposedExperts(std::string_view name, LinearRole role, Rows rows) {
  return {.name = name,
          .role = role,
          .rows = rows,
          .ending = "",
          .transposed = true,
          .may_be_plain = true};
}
inline constexpr ProjectionName kQwenVlExperts[] = {
    TransposedExperts("mlp.experts.gate_up_proj", LinearRole::kExpertGateUp, Rows::kExpertGateUp),
    TransposedExperts("mlp.experts.down_proj", LinearRole::kExpertDown, Rows::kHidden),
};
inline constexpr auto kQwenVlJoined = Join(kRouterGate, kQwenVlExperts);
inline constexpr ExpertSpelling kQwenVlSpellings[] = {{kQwenVlJoined}, {kQwenEach}};

// A.X-K1's norm of what experts give has the name of the hub, or that in the memory of
// transformers. The released checkpoints have no correction.
constexpr ExpertSpelling AxSpelling(std::span<const ProjectionName> projections,
                                    std::string_view correction, std::string_view post_norm) {
  return {.projections = projections, .correction = correction, .post_norm = post_norm};
}
inline constexpr ExpertSpelling kAxSpellings[] = {
    AxSpelling(kGlmEach, "mlp.gate.e_score_correction_bias", "post_mlp_layernorm"),
    AxSpelling(kGlmJoined, "mlp.gate.e_score_correction_bias", "mlp.post_mlp_layernorm"),
    AxSpelling(kGlmEach, {}, "post_mlp_layernorm"),
    AxSpelling(kGlmJoined, {}, "mlp.post_mlp_layernorm"),
};
inline constexpr std::string_view kOneOrNull[] = {"1", "null"};
inline constexpr Requirement kExpertsInEveryLayer[] = {
    {"moe_layer_freq", kOneOrNull, "layers without experts between those that have some"}};

// Sarvam's names on the hub. transformers writes those of GLM-4-MoE, and its architecture.
inline constexpr ProjectionName kSarvamAttention[] = {
    {"attention.query_key_value", LinearRole::kQkv, Rows::kQkv},
    {"attention.dense", LinearRole::kOut, Rows::kHidden},
};
inline constexpr auto kSarvamProjections = Join(kSarvamAttention, kSeparateFfn);
inline constexpr NormName kSarvamQkNorms[] = {
    {"attention.query_layernorm", NormRole::kQ},
    {"attention.key_layernorm", NormRole::kK},
};
inline constexpr auto kSarvamNorms = Join(kPreNorms, kSarvamQkNorms);
inline constexpr ExpertSpelling kSarvamSpellings[] = {{kGlmEach, "mlp.gate.expert_bias"}};

// ---- Rows ----

// GLM-4-MoE and its kin: scores are sigmoids, and a shared expert is as large as some others.
constexpr ExpertRule kGlmExperts = {.num_experts = "n_routed_experts",
                                    .num_shared = "n_shared_experts",
                                    .renormalize = "norm_topk_prob",
                                    .scale = "routed_scaling_factor",
                                    .reads_groups = true,
                                    .layers = SparseLayers::kBehindFirst,
                                    .score = kernels::RouterScore::kSigmoid,
                                    .spellings = kGlmSpellings,
                                    .absent = {.num_experts = 128,
                                               .num_chosen = 8,
                                               .ffn_size = 1408,
                                               .num_shared = 1,
                                               .renormalize = true}};

constexpr ArchSpec Dots1() {
  ArchSpec spec = {
      .architecture = "Dots1ForCausalLM",
      .projections = kSeparateProjections,
      .norms = kPreNormsQk,
      .qk_norm = QkNorm::kPerHead,
      .qkv_bias = kAttentionBias,
      .out_bias = kAttentionBias,
      .window_rule = WindowRule::kFromLayerIfAny,
      .experts = kGlmExperts,
      .defaults = {.num_key_value_heads = 32, .sliding_window = 4096, .max_window_layers = 62}};
  spec.experts.absent = {.ffn_size = 1408, .first_sparse = 0};
  return spec;
}

constexpr ArchSpec Glm4vMoe() {
  return {.architecture = "Glm4vMoeForConditionalGeneration",
          .config_section = "text_config",
          .projections = kSeparateProjections,
          .norms = kPreNorms,
          .ignored_prefixes = kQwenVisionParts,
          .qkv_bias = kAttentionBiasByDefault,
          .reads_partial_rotary_factor = true,
          .reads_mrope = true,
          .experts = kGlmExperts,
          .defaults = {.num_attention_heads = 96,
                       .num_key_value_heads = 8,
                       .max_position_embeddings = 65536,
                       .norm_eps = 1e-5,
                       .partial_rotary_factor = 0.5}};
}

constexpr ArchSpec SolarOpen() {
  ArchSpec spec = {.architecture = "SolarOpenForCausalLM",
                   .projections = kSeparateProjections,
                   .norms = kPreNorms,
                   .ffn_size_field = "moe_intermediate_size",
                   .qkv_bias = kAttentionBias,
                   .experts = kGlmExperts,
                   .defaults = {.num_attention_heads = 64,
                                .num_key_value_heads = 8,
                                .head_dim = 128,
                                .max_position_embeddings = 131072,
                                .norm_eps = 1e-5,
                                .rope_theta = 1e6}};
  spec.experts.layers = SparseLayers::kAll;
  spec.experts.absent.ffn_size = 1280;
  return spec;
}

constexpr ArchSpec SarvamMoe() {
  ArchSpec spec = {.architecture = "SarvamMoEForCausalLM",
                   .projections = kSarvamProjections,
                   .norms = kSarvamNorms,
                   .names = {.embeddings = "word_embeddings.weight"},
                   .qk_norm = QkNorm::kPerHead,
                   .has_qk_norm = {.field = "use_qk_norm", .absent = true},
                   .qkv_bias = {.field = "use_qkv_bias"},
                   .reads_partial_rotary_factor = true,
                   .experts = kGlmExperts,
                   .defaults = {.num_attention_heads = 64,
                                .num_key_value_heads = 4,
                                .head_dim = 64,
                                .max_position_embeddings = 131072,
                                .rope_theta = 8e6}};
  spec.experts.num_experts = "num_experts";
  spec.experts.num_shared = "num_shared_experts";
  spec.experts.spellings = kSarvamSpellings;
  spec.experts.absent.num_chosen = 6;
  spec.experts.absent.ffn_size = 1024;
  spec.experts.absent.scale = 2.5;
  return spec;
}

constexpr ArchSpec SarvamMla() {
  ArchSpec spec = WithLatentAttention("SarvamMLAForCausalLM");
  spec.experts.num_experts = "num_experts";
  spec.experts.num_shared = "num_shared_experts";
  spec.experts.absent.num_experts = 128;
  spec.experts.absent.num_groups = 1;
  spec.experts.absent.num_chosen_groups = 1;
  spec.experts.absent.first_sparse = 1;
  spec.latent.absent.q_rank = 0;
  spec.defaults.num_attention_heads = 64;
  return spec;
}

constexpr ArchSpec ExaoneMoe(std::string_view architecture) {
  ArchSpec spec = {.architecture = architecture,
                   .projections = kSeparateProjections,
                   .norms = kPreNormsQk,
                   .qk_norm = QkNorm::kPerHead,
                   .window_rule = WindowRule::kEveryButNthIfAny,
                   .window_pattern_field = "sliding_window_pattern",
                   .rope_rule = RopeRule::kInWindowsIfAny,
                   .experts = kGlmExperts,
                   .defaults = {.num_attention_heads = 32,
                                .num_key_value_heads = 32,
                                .norm_eps = 1e-5,
                                .sliding_window = 4096,
                                .sliding_window_pattern = 4}};
  spec.experts.num_experts = "num_experts";
  spec.experts.num_shared = "num_shared_experts";
  spec.experts.layers = SparseLayers::kListedOrBehindFirst;
  spec.experts.spellings = kExaoneSpellings;
  spec.experts.absent.num_experts = 64;
  spec.experts.absent.ffn_size = 1024;
  spec.experts.absent.scale = 2.5;
  return spec;
}

constexpr ArchSpec Hy3() {
  ArchSpec spec = {.architecture = "HYV3ForCausalLM",
                   .projections = kSeparateProjections,
                   .norms = kPreNormsQk,
                   .qk_norm = QkNorm::kPerHead,
                   .qkv_bias = kAttentionBias,
                   .out_bias = kAttentionBias,
                   .ffn_bias = kMlpBias,
                   .experts = kGlmExperts,
                   .defaults = {.num_attention_heads = 64,
                                .num_key_value_heads = 8,
                                .head_dim = 128,
                                .max_position_embeddings = 131072,
                                .norm_eps = 1e-5,
                                .rope_theta = 11158840}};
  ExpertRule& experts = spec.experts;
  experts.num_experts = "num_experts";
  experts.num_shared = "num_shared_experts";
  experts.renormalize = {};
  experts.scale = "router_scaling_factor";
  experts.reads_groups = false;
  experts.layers = SparseLayers::kListed;
  experts.spellings = kHy3Spellings;
  experts.absent.num_experts = 192;
  experts.absent.ffn_size = 1536;
  experts.absent.scale = 2.826;
  return spec;
}

constexpr ArchSpec AxK1() {
  ArchSpec spec = WithLatentAttention("AXK1ForCausalLM");
  spec.requirements = kExpertsInEveryLayer;
  spec.experts.layers = SparseLayers::kListedOrBehindFirst;
  spec.experts.spellings = kAxSpellings;
  spec.experts.absent.num_experts = 192;
  spec.experts.absent.first_sparse = 1;
  spec.defaults = {.num_attention_heads = 64, .max_position_embeddings = 32768};
  return spec;
}

constexpr ArchSpec Glm46vMoe() {
  ArchSpec spec = Glm4vMoe();
  spec.architecture = "Glm46VForConditionalGeneration";
  spec.text_model_type = "glm4v_moe_text";
  return spec;
}

constexpr ArchSpec GraniteMoeSwa() {
  ArchSpec spec = GraniteMoeShared();
  spec.architecture = "GraniteMoeSWAForCausalLM";
  spec.vectors = kGptOssVectors;
  spec.reads_layer_thetas = true;
  spec.window_rule = WindowRule::kEveryButFirstOfN;
  spec.defaults.sliding_window = 128;
  spec.defaults.sliding_window_pattern = 4;
  return spec;
}

inline constexpr ArchSpec kOtherExpertRows[] = {
    {.architecture = "Glm4MoeForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNormsQk,
     .qk_norm = QkNorm::kPerHead,
     .has_qk_norm = {.field = "use_qk_norm"},
     .qkv_bias = kAttentionBias,
     .reads_partial_rotary_factor = true,
     .experts = kGlmExperts,
     .defaults = {.num_attention_heads = 96,
                  .num_key_value_heads = 8,
                  .max_position_embeddings = 131072,
                  .norm_eps = 1e-5,
                  .partial_rotary_factor = 0.5}},
    Dots1(),
    Glm4vMoe(),
    Glm46vMoe(),
    GraniteMoeSwa(),
    SolarOpen(),
    SarvamMoe(),
    SarvamMla(),
    // As the hub writes it, and as transformers does.
    ExaoneMoe("ExaoneMoEForCausalLM"),
    ExaoneMoe("ExaoneMoeForCausalLM"),
    Hy3(),
    AxK1(),
    {.architecture = "HunYuanMoEV1ForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNormsHunYuanQk,
     .qk_norm = QkNorm::kPerHead,
     .rope_before_qk_norm = true,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .reads_rope_alpha = true,
     .experts = {.num_experts = "num_experts",
                 .num_chosen = "moe_topk",
                 .ffn_size = "intermediate_size",
                 .shared_size = "intermediate_size",
                 .spellings = kHunYuanSpellings,
                 .absent = {.num_experts = 1, .num_chosen = 1, .renormalize = true}},
     .defaults = {.norm_eps = 1e-5}},
    {.architecture = "Qwen3VLMoeForConditionalGeneration",
     .config_section = "text_config",
     .projections = kSeparateProjections,
     .norms = kPreNormsQk,
     .ignored_prefixes = kQwenVisionParts,
     .qk_norm = QkNorm::kPerHead,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .reads_mrope = true,
     .experts =
         {.num_experts = "num_experts",
          .layers = SparseLayers::kEveryStep,
          .spellings = kQwenVlSpellings,
          .absent = {.num_experts = 60, .num_chosen = 4, .ffn_size = 1408, .renormalize = true}},
     .defaults = {.num_attention_heads = 16,
                  .num_key_value_heads = 16,
                  .max_position_embeddings = 128000,
                  .rope_theta = 5e5}},
    {.architecture = "FlexOlmoForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPostNormsQk,
     .qk_norm = QkNorm::kWholeProjection,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .experts = {.num_experts = "num_experts",
                 .ffn_size = "intermediate_size",
                 .renormalize = "norm_topk_prob",
                 .spellings = kQwenSpellings,
                 .absent = {.num_experts = 7, .num_chosen = 5}},
     .defaults = {.max_position_embeddings = 4096, .rope_theta = 5e5}},
    {.architecture = "MellumForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNormsQk,
     .qk_norm = QkNorm::kPerHead,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .window_rule = WindowRule::kByType,
     .local_rope = true,
     .experts = {.num_experts = "num_experts",
                 .renormalize = "norm_topk_prob",
                 .layers = SparseLayers::kListedOrBehindFirst,
                 .spellings = kQwenSpellings,
                 .absent = {.num_experts = 64,
                            .num_chosen = 8,
                            .ffn_size = 896,
                            .renormalize = true,
                            .first_sparse = 0}},
     .defaults = {.num_attention_heads = 32,
                  .num_key_value_heads = 4,
                  .head_dim = 128,
                  .max_position_embeddings = 131072,
                  .rope_theta = 5e5,
                  .sliding_window = 1024}},
};

}  // namespace mlc_native
