// Rows of arch_table.cc: families with mixtures of experts, and how checkpoints spell their
// tensors.
#pragma once

#include "arch/dense_rows.h"
#include "arch/tensor_names.h"

namespace mlc_native {

// ---- Names ----

// A tensor of each expert, as the hub has them, or all in one, as they are in the memory of
// transformers.
inline constexpr ProjectionName kRouterGate[] = {{"mlp.gate", LinearRole::kRouter, Rows::kExperts}};
inline constexpr ProjectionName kEachExpert[] = {
    {"mlp.experts.#.gate_proj", LinearRole::kExpertGateUp, Rows::kExpertFfn},
    {"mlp.experts.#.up_proj", LinearRole::kExpertGateUp, Rows::kExpertFfn},
    {"mlp.experts.#.down_proj", LinearRole::kExpertDown, Rows::kHidden},
};
inline constexpr ProjectionName kJoinedExperts[] = {
    {"mlp.experts.gate_up_proj", LinearRole::kExpertGateUp, Rows::kExpertGateUp, ""},
    {"mlp.experts.down_proj", LinearRole::kExpertDown, Rows::kHidden, ""},
};
inline constexpr ProjectionName kMixtralEach[] = {
    {"block_sparse_moe.gate", LinearRole::kRouter, Rows::kExperts},
    {"block_sparse_moe.experts.#.w1", LinearRole::kExpertGateUp, Rows::kExpertFfn},
    {"block_sparse_moe.experts.#.w3", LinearRole::kExpertGateUp, Rows::kExpertFfn},
    {"block_sparse_moe.experts.#.w2", LinearRole::kExpertDown, Rows::kHidden},
};
inline constexpr ProjectionName kPhiRouter[] = {
    {"mlp.router", LinearRole::kRouter, Rows::kExperts}};
inline constexpr ProjectionName kGraniteHub[] = {
    {"block_sparse_moe.router.layer", LinearRole::kRouter, Rows::kExperts},
    {"block_sparse_moe.input_linear", LinearRole::kExpertGateUp, Rows::kExpertGateUp},
    {"block_sparse_moe.output_linear", LinearRole::kExpertDown, Rows::kHidden},
};
inline constexpr ProjectionName kGraniteJoined[] = {
    {"block_sparse_moe.router", LinearRole::kRouter, Rows::kExperts},
    {"block_sparse_moe.experts.gate_up_proj", LinearRole::kExpertGateUp, Rows::kExpertGateUp, ""},
    {"block_sparse_moe.experts.down_proj", LinearRole::kExpertDown, Rows::kHidden, ""},
};
// The gate's row of the router's matrix follows those of the experts.
inline constexpr ProjectionName kQwenShared[] = {
    {"mlp.shared_expert_gate", LinearRole::kRouter, Rows::kOne},
    {"mlp.shared_expert.gate_proj", LinearRole::kSharedGateUp, Rows::kSharedFfn},
    {"mlp.shared_expert.up_proj", LinearRole::kSharedGateUp, Rows::kSharedFfn},
    {"mlp.shared_expert.down_proj", LinearRole::kSharedDown, Rows::kHidden},
};
inline constexpr ProjectionName kGlmShared[] = {
    {"mlp.shared_experts.gate_proj", LinearRole::kSharedGateUp, Rows::kSharedFfn},
    {"mlp.shared_experts.up_proj", LinearRole::kSharedGateUp, Rows::kSharedFfn},
    {"mlp.shared_experts.down_proj", LinearRole::kSharedDown, Rows::kHidden},
};
inline constexpr ProjectionName kGraniteShared[] = {
    {"shared_mlp.input_linear", LinearRole::kSharedGateUp, Rows::kSharedGateUp},
    {"shared_mlp.output_linear", LinearRole::kSharedDown, Rows::kHidden},
};
inline constexpr auto kQwenEach = Join(kRouterGate, kEachExpert);
inline constexpr auto kQwenJoined = Join(kRouterGate, kJoinedExperts);
inline constexpr auto kQwenEachShared = Join(kRouterGate, kEachExpert, kQwenShared);
inline constexpr auto kQwenJoinedShared = Join(kRouterGate, kJoinedExperts, kQwenShared);
inline constexpr auto kGlmEach = Join(kRouterGate, kEachExpert, kGlmShared);
inline constexpr auto kGlmJoined = Join(kRouterGate, kJoinedExperts, kGlmShared);
inline constexpr auto kPhiJoined = Join(kPhiRouter, kJoinedExperts);
inline constexpr auto kGraniteHubShared = Join(kGraniteHub, kGraniteShared);
inline constexpr auto kGraniteJoinedShared = Join(kGraniteJoined, kGraniteShared);

inline constexpr ExpertSpelling kQwenSpellings[] = {{kQwenEach}, {kQwenJoined}};
inline constexpr ExpertSpelling kQwenSharedSpellings[] = {{kQwenEachShared}, {kQwenJoinedShared}};
// The last spellings are those that GGUF files get.
inline constexpr ExpertSpelling kMixtralSpellings[] = {{kMixtralEach}, {kQwenJoined}, {kQwenEach}};
inline constexpr ExpertSpelling kPhiSpellings[] = {{kMixtralEach}, {kPhiJoined}, {kQwenEach}};
inline constexpr ExpertSpelling kGraniteSpellings[] = {
    {kGraniteHub}, {kGraniteJoined}, {kQwenEach}};
inline constexpr ExpertSpelling kGraniteSharedSpellings[] = {
    {kGraniteHubShared}, {kGraniteJoinedShared}, {kGlmEach}};
inline constexpr ExpertSpelling kGlmSpellings[] = {
    {kGlmEach, "mlp.gate.e_score_correction_bias"},
    {kGlmJoined, "mlp.gate.e_score_correction_bias"},
};
inline constexpr ExpertSpelling kMiniMaxSpellings[] = {
    {kMixtralEach, "block_sparse_moe.e_score_correction_bias"},
    {kQwenJoined, "mlp.e_score_correction_bias"},
    {kQwenEach, "mlp.gate.e_score_correction_bias"},
};
inline constexpr ExpertSpelling kErnieSpellings[] = {
    {kGlmEach, "mlp.moe_statics.e_score_correction_bias", true},
    {kGlmJoined, "mlp.gate.moe_statics.e_score_correction_bias", true},
};

constexpr ProjectionName GptOssExperts(std::string_view name, LinearRole role, Rows rows) {
  return {.name = name,
          .role = role,
          .rows = rows,
          .ending = "",
          .bias_ending = "_bias",
          .transposed = true,
          .alternating = role == LinearRole::kExpertGateUp};
}
inline constexpr ProjectionName kGptOssExperts[] = {
    {"mlp.router", LinearRole::kRouter, Rows::kExperts},
    GptOssExperts("mlp.experts.gate_up_proj", LinearRole::kExpertGateUp, Rows::kExpertGateUp),
    GptOssExperts("mlp.experts.down_proj", LinearRole::kExpertDown, Rows::kHidden),
};
inline constexpr ExpertSpelling kGptOssSpellings[] = {{kGptOssExperts}, {kQwenEach}};
inline constexpr VectorName kGptOssVectors[] = {{"self_attn.sinks", VectorRole::kSinks}};
inline constexpr std::string_view kGptOssRope =
    R"({"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
        "truncate": false, "original_max_position_embeddings": 4096})";

inline constexpr ExpertSpelling kDeepSeekV2Spellings[] = {{kGlmEach}, {kGlmJoined}};

// ---- Latent attention ----

inline constexpr ProjectionName kLatentQueries[] = {
    {"self_attn.q_a_proj", LinearRole::kQkv, Rows::kQueryLatent}};
inline constexpr ProjectionName kDirectQueries[] = {
    {"self_attn.q_proj", LinearRole::kQkv, Rows::kQueryLatent}};
inline constexpr ProjectionName kLatentKeyValues[] = {
    {"self_attn.kv_a_proj_with_mqa", LinearRole::kQkv, Rows::kKeyValueLatent}};
inline constexpr ProjectionName kQueryUp[] = {
    {"self_attn.q_b_proj", LinearRole::kQueryUp, Rows::kQueryUp}};
inline constexpr ProjectionName kKeyValueUp[] = {
    // and kHeadValueUp
    {"self_attn.kv_b_proj", LinearRole::kHeadKeyUp, Rows::kKeyValueUp}};
inline constexpr auto kLatentProjections =
    Join(kLatentQueries, kLatentKeyValues, kQueryUp, kKeyValueUp, kOut, kSeparateFfn);
inline constexpr auto kDirectQueryProjections =
    Join(kDirectQueries, kLatentKeyValues, kKeyValueUp, kOut, kSeparateFfn);
inline constexpr ProjectionName kIndex[] = {
    {"self_attn.indexer.wq_b", LinearRole::kIndexQueries, Rows::kIndexQueries},
    {"self_attn.indexer.wk", LinearRole::kIndexKeys, Rows::kIndexKeys},
    {"self_attn.indexer.weights_proj", LinearRole::kIndexWeights, Rows::kIndexWeights},
};
inline constexpr auto kIndexedProjections =
    Join(kLatentQueries, kLatentKeyValues, kQueryUp, kKeyValueUp, kOut, kSeparateFfn, kIndex);
inline constexpr NormName kNormsOfLatents[] = {
    {"self_attn.q_a_layernorm", NormRole::kQ},
    {"self_attn.kv_a_layernorm", NormRole::kK},
};
inline constexpr auto kPreNormsLatents = Join(kPreNorms, kNormsOfLatents);
inline constexpr NormName kIndexNorm[] = {{"self_attn.indexer.k_norm", NormRole::kIndexKeys}};
inline constexpr auto kPreNormsIndexed = Join(kPreNorms, kNormsOfLatents, kIndexNorm);

// ---- Rows ----

// DeepSeek V3 and its kin.
constexpr ArchSpec WithLatentAttention(std::string_view architecture) {
  return {
      .architecture = architecture,
      .projections = kLatentProjections,
      .norms = kPreNormsLatents,
      .qk_norm = QkNorm::kLatents,
      .qkv_bias = kAttentionBias,
      .out_bias = kAttentionBias,
      .interleaved_rope = true,
      .experts = {.num_experts = "n_routed_experts",
                  .num_shared = "n_shared_experts",
                  .renormalize = "norm_topk_prob",
                  .scale = "routed_scaling_factor",
                  .reads_groups = true,
                  .layers = SparseLayers::kBehindFirst,
                  .score = kernels::RouterScore::kSigmoid,
                  .spellings = kGlmSpellings,
                  .absent = {.num_experts = 256,
                             .num_chosen = 8,
                             .ffn_size = 2048,
                             .num_shared = 1,
                             .renormalize = true,
                             .scale = 2.5,
                             .num_groups = 8,
                             .num_chosen_groups = 4,
                             .first_sparse = 3}},
      .latent = {.exists = true, .direct_queries = kDirectQueryProjections},
      .defaults = {.num_attention_heads = 128, .max_position_embeddings = 4096},
  };
}

// DeepSeek V3.2 and its kin: each query attends to chosen keys.
constexpr ArchSpec WithKeyChoice(std::string_view architecture) {
  ArchSpec spec = WithLatentAttention(architecture);
  spec.projections = kIndexedProjections;
  spec.norms = kPreNormsIndexed;
  spec.experts.layers = SparseLayers::kListedOrBehindFirst;
  spec.key_choice = {.exists = true};
  spec.defaults.max_position_embeddings = 163840;
  return spec;
}

constexpr ArchSpec GlmMoeDsa() {
  ArchSpec spec = WithKeyChoice("GlmMoeDsaForCausalLM");
  spec.experts.absent.num_groups = 1;
  spec.experts.absent.num_chosen_groups = 1;
  spec.latent.absent = {.q_rank = 2048, .plain_dim = 192, .value_dim = 256};
  spec.key_choice.interleaved_rope = true;
  spec.key_choice.may_share = true;
  spec.key_choice.absent.num_heads = 32;
  spec.defaults = {.num_attention_heads = 64, .max_position_embeddings = 202752, .norm_eps = 1e-5};
  return spec;
}

constexpr ArchSpec DeepSeekV2() {
  ArchSpec spec = WithLatentAttention("DeepseekV2ForCausalLM");
  spec.ffn_bias = kMlpBias;
  spec.experts.renormalize = {};
  spec.experts.best_judges = true;
  spec.experts.score = kernels::RouterScore::kSoftmax;
  spec.experts.spellings = kDeepSeekV2Spellings;
  spec.experts.absent = {.num_experts = 64, .ffn_size = 1407, .num_shared = 2, .first_sparse = 0};
  spec.defaults = {.num_attention_heads = 32, .max_position_embeddings = 2048};
  return spec;
}

inline constexpr std::string_view kMistral4Rope =
    R"({"rope_type": "yarn", "rope_theta": 10000.0, "factor": 128.0,
        "original_max_position_embeddings": 8192, "beta_fast": 32.0, "beta_slow": 1.0,
        "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1})";

constexpr ArchSpec Mistral4(std::string_view architecture) {
  ArchSpec spec = WithLatentAttention(architecture);
  spec.reads_partial_rotary_factor = true;
  spec.query_scaling = QueryScalingRule::kRopeSays;
  spec.experts.score = kernels::RouterScore::kSoftmax;
  spec.experts.spellings = kDeepSeekV2Spellings;
  spec.experts.absent = {.num_experts = 128,
                         .num_chosen = 4,
                         .ffn_size = 2048,
                         .num_shared = 1,
                         .renormalize = true,
                         .first_sparse = 0};
  spec.latent.absent = {.q_rank = 1024, .kv_rank = 256, .plain_dim = 64};
  spec.defaults = {.num_attention_heads = 32,
                   .max_position_embeddings = 1048576,
                   .rope_parameters = kMistral4Rope};
  return spec;
}

constexpr ArchSpec Mistral4WithVision() {
  ArchSpec spec = Mistral3WithVision(Mistral4(kMistral3));
  spec.text_model_type = "mistral4";
  return spec;
}

constexpr ArchSpec Glm4MoeLite() {
  ArchSpec spec = WithLatentAttention("Glm4MoeLiteForCausalLM");
  spec.experts.layers = SparseLayers::kListed;
  spec.experts.absent = {.num_experts = 64,
                         .num_chosen = 4,
                         .ffn_size = 1536,
                         .num_shared = 1,
                         .renormalize = true,
                         .scale = 1.8};
  spec.latent.absent = {.q_rank = 768, .plain_dim = 192, .value_dim = 256};
  spec.defaults = {.num_attention_heads = 20, .max_position_embeddings = 202752, .norm_eps = 1e-5};
  return spec;
}

constexpr ArchSpec GraniteMoe() {
  return {
      .architecture = "GraniteMoeForCausalLM",
      .projections = kSeparateProjections,
      .norms = kPreNorms,
      .qkv_bias = kAttentionBias,
      .out_bias = kAttentionBias,
      .multipliers = kGraniteMultipliers,
      .experts = {.num_experts = "num_local_experts",
                  .ffn_size = "intermediate_size",
                  .spellings = kGraniteSpellings,
                  .absent = {.num_experts = 8, .num_chosen = 2, .renormalize = true}},
  };
}

constexpr ArchSpec GraniteMoeShared() {
  ArchSpec spec = GraniteMoe();
  spec.architecture = "GraniteMoeSharedForCausalLM";
  spec.experts.shared_size = "shared_intermediate_size";
  spec.experts.spellings = kGraniteSharedSpellings;
  return spec;
}

inline constexpr ArchSpec kExpertRows[] = {
    DeepSeekV2(),
    WithLatentAttention("DeepseekV3ForCausalLM"),
    WithKeyChoice("DeepseekV32ForCausalLM"),
    GlmMoeDsa(),
    Glm4MoeLite(),
    Mistral4("Mistral4ForCausalLM"),
    Mistral4WithVision(),
    {.architecture = "Qwen3MoeForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNormsQk,
     .qk_norm = QkNorm::kPerHead,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .window_rule = WindowRule::kAllIfAsked,
     .experts = {.num_experts = "num_experts",
                 .renormalize = "norm_topk_prob",
                 .layers = SparseLayers::kEveryStep,
                 .spellings = kQwenSpellings,
                 .absent = {.num_experts = 128, .num_chosen = 8, .ffn_size = 768}},
     .defaults = {.num_key_value_heads = 4,
                  .max_position_embeddings = 32768,
                  .sliding_window = 4096}},
    {.architecture = "Qwen2MoeForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .qkv_bias = {.field = "qkv_bias", .absent = true},
     .window_rule = WindowRule::kEvenBelowLayer,
     .experts =
         {.num_experts = "num_experts",
          .shared_size = "shared_expert_intermediate_size",
          .renormalize = "norm_topk_prob",
          .shared_gate = true,
          .layers = SparseLayers::kEveryStep,
          .spellings = kQwenSharedSpellings,
          .absent = {.num_experts = 60, .num_chosen = 4, .ffn_size = 1408, .shared_size = 5632}},
     .defaults = {.num_key_value_heads = 16,
                  .max_position_embeddings = 32768,
                  .sliding_window = 4096}},
    {.architecture = "OlmoeForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNormsQk,
     .qk_norm = QkNorm::kWholeProjection,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .experts = {.num_experts = "num_experts",
                 .ffn_size = "intermediate_size",
                 .renormalize = "norm_topk_prob",
                 .spellings = kQwenSpellings,
                 .absent = {.num_experts = 64, .num_chosen = 8}},
     .defaults = {.max_position_embeddings = 4096, .norm_eps = 1e-5}},
    {.architecture = "MixtralForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .window_rule = WindowRule::kAllLayers,
     .experts = {.num_experts = "num_local_experts",
                 .ffn_size = "intermediate_size",
                 .spellings = kMixtralSpellings,
                 .absent = {.num_experts = 8, .num_chosen = 2, .renormalize = true}},
     .defaults = {.num_key_value_heads = 8,
                  .max_position_embeddings = 131072,
                  .norm_eps = 1e-5,
                  .rope_theta = 1e6}},
    GraniteMoe(),
    GraniteMoeShared(),
    {.architecture = "PhimoeForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .norm_kind = NormKind::kLayer,
     .norm_bias = true,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .head_bias = {.field = "lm_head_bias"},
     .reads_rope_mscales = true,
     .window_rule = WindowRule::kAllLayers,
     .experts = {.num_experts = "num_local_experts",
                 .ffn_size = "intermediate_size",
                 .score = kernels::RouterScore::kSparseMixer,
                 .spellings = kPhiSpellings,
                 .absent = {.num_experts = 16, .num_chosen = 2}},
     .defaults = {.num_key_value_heads = 8,
                  .max_position_embeddings = 131072,
                  .norm_eps = 1e-5,
                  .rope_theta = 1e6}},
    {.architecture = "MiniMaxM2ForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNormsQk,
     .qk_norm = QkNorm::kWholeProjection,
     .reads_partial_rotary_factor = true,
     .experts = {.num_experts = "num_local_experts",
                 .ffn_size = "intermediate_size",
                 .score = kernels::RouterScore::kSigmoid,
                 .spellings = kMiniMaxSpellings,
                 .absent = {.num_experts = 256, .num_chosen = 8, .renormalize = true}},
     .defaults = {.num_key_value_heads = 8,
                  .head_dim = 128,
                  .max_position_embeddings = 196608,
                  .rope_theta = 5e6}},
    {.architecture = "GptOssForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .vectors = kGptOssVectors,
     .qkv_bias = {.field = "attention_bias", .absent = true},
     .out_bias = {.field = "attention_bias", .absent = true},
     .window_rule = WindowRule::kEveryButNth,
     .experts =
         {.num_experts = "num_local_experts",
          .ffn_size = "intermediate_size",
          .biases = true,
          .clamped_swiglu = true,
          .spellings = kGptOssSpellings,
          .absent = {.num_experts = 128, .num_chosen = 4, .ffn_size = 2880, .renormalize = true}},
     .defaults = {.vocab_size = 201088,
                  .num_attention_heads = 64,
                  .num_key_value_heads = 8,
                  .head_dim = 64,
                  .max_position_embeddings = 131072,
                  .norm_eps = 1e-5,
                  .rope_theta = 1.5e5,
                  .rope_parameters = kGptOssRope,
                  .sliding_window = 128,
                  .sliding_window_pattern = 2}},
    {.architecture = "Ernie4_5_MoeForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .qkv_bias = kUseBias,
     .out_bias = kUseBias,
     .ffn_bias = kUseBias,
     .head_bias = kUseBias,
     .interleaved_rope = true,
     .experts = {.num_experts = "moe_num_experts",
                 .num_chosen = "moe_k",
                 .num_shared = "moe_num_shared_experts",
                 .smallest_sum = "moe_norm_min",
                 .layers = SparseLayers::kInterval,
                 .spellings = kErnieSpellings,
                 .absent = {.num_experts = 64,
                            .num_chosen = 6,
                            .ffn_size = 1536,
                            .num_shared = 2,
                            .renormalize = true,
                            .smallest_sum = 1e-12}},
     .defaults = {.num_attention_heads = 20,
                  .num_key_value_heads = 4,
                  .max_position_embeddings = 131072,
                  .norm_eps = 1e-5,
                  .rope_theta = 5e5,
                  .tie_word_embeddings = true}},
};

}  // namespace mlc_native
