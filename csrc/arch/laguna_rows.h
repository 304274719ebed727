// Rows of arch_table.cc: Laguna and MiMo-V2-Flash, with sigmoid experts, whose layers differ in
// their numbers of heads and in their ropes.
#pragma once

#include "arch/expert_rows.h"
#include "arch/mamba_rows.h"

namespace mlc_native {

inline constexpr ProjectionName kLagunaGates[] = {
    {"self_attn.g_proj", LinearRole::kQkv, Rows::kAttentionGates, ".weight", ""}};
inline constexpr auto kLagunaProjections = Join(kLagunaGates, kSeparateQkv, kOut, kSeparateFfn);
inline constexpr OtherName kLagunaHub[] = {
    {"mlp.shared_experts.", "mlp.shared_expert."},
    {"mlp.gate.e_score_correction_bias", "mlp.experts.e_score_correction_bias"},
};
inline constexpr std::string_view kLagunaRope =
    R"({"full_attention": {"rope_type": "default", "rope_theta": 500000.0,
                           "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})";
inline constexpr Requirement kWeighsOutputs[] = {
    {"moe_apply_router_weight_on_input", kNo, "weights of what experts read"}};

constexpr ArchSpec Laguna() {
  return {.architecture = "LagunaForCausalLM",
          .projections = kLagunaProjections,
          .norms = kPreNormsQk,
          .other_names = kLagunaHub,
          .requirements = kWeighsOutputs,
          .qk_norm = QkNorm::kPerHead,
          .qkv_bias = kAttentionBias,
          .out_bias = kAttentionBias,
          .reads_partial_rotary_factor = true,
          .partial_rotary_field = {},
          .window_rule = WindowRule::kByType,
          .local_rope = true,
          .layer_heads_field = "num_attention_heads_per_layer",
          .experts = {.num_experts = "num_experts",
                      .shared_size = "shared_expert_intermediate_size",
                      .scale = "moe_routed_scaling_factor",
                      .logit_cap = "moe_router_logit_softcapping",
                      .layers = SparseLayers::kListed,
                      .score = kernels::RouterScore::kSigmoid,
                      .spellings = kGlmSpellings,
                      .absent = {.num_experts = 256,
                                 .num_chosen = 8,
                                 .ffn_size = 512,
                                 .shared_size = 512,
                                 .renormalize = true}},
          .attention_gates_field = "gating",
          .softplus_gates = true,
          .defaults = {.vocab_size = 100352,
                       .ffn_size = 8192,
                       .num_attention_heads = 48,
                       .num_key_value_heads = 8,
                       .head_dim = 128,
                       .max_position_embeddings = 131072,
                       .rope_theta = 5e5,
                       .rope_parameters = kLagunaRope,
                       .sliding_window = 512}};
}

// ---- MiMo-V2-Flash: values shorter than keys; windows have sinks and KV heads of their own ----

inline constexpr OtherName kMimoHub[] = {{"self_attn.sinks", "self_attn.attention_sink_bias"}};
inline constexpr std::string_view kMimoParts[] = {"model.mtp."};
inline constexpr std::string_view kNullAlone[] = {"null"};
inline constexpr std::string_view kNullOrTrue[] = {"null", "true"};
inline constexpr std::string_view kNullOr0[] = {"null", "0"};
inline constexpr Requirement kMimoRequirements[] = {
    {"swa_head_dim", kNullAlone, "heads of another size in layers with a window", "head_dim"},
    {"swa_v_head_dim", kNullAlone, "values of another size in layers with a window", "v_head_dim"},
    {"swa_num_attention_heads", kNullAlone, "other query heads in layers with a window",
     "num_attention_heads"},
    {"add_swa_attention_sink_bias", kNullOrTrue, "windows without sinks"},
    {"add_full_attention_sink_bias", kNo, "sinks of layers without a window"},
    {"n_shared_experts", kNullOr0, "a shared expert"},
};
inline constexpr ExpertSpelling kMimoSpellings[] = {
    {kQwenEach, "mlp.gate.e_score_correction_bias"},
    {kQwenJoined, "mlp.gate.e_score_correction_bias"},
};
inline constexpr std::string_view kMimoRope =
    R"({"full_attention": {"rope_type": "default", "rope_theta": 5000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})";

constexpr ArchSpec MimoV2Flash() {
  return {.architecture = "MiMoV2FlashForCausalLM",
          .projections = kSeparateProjections,
          .norms = kPreNorms,
          .other_names = kMimoHub,
          .ignored_prefixes = kMimoParts,
          .requirements = kMimoRequirements,
          .vectors = kGptOssVectors,
          .qkv_bias = kAttentionBias,
          .multipliers = {.values = "attention_value_scale", .absent_values = 0.707},
          .reads_partial_rotary_factor = true,
          .partial_rotary_field = {},
          .window_rule = WindowRule::kEveryButFirstAndNth,
          .local_rope = true,
          .reads_window_kv_heads = true,
          .has_sinks_in_windows = true,
          .reads_window_before = true,
          .experts = {.num_experts = "n_routed_experts",
                      .renormalize = "norm_topk_prob",
                      .scale = "routed_scaling_factor",
                      .reads_groups = true,
                      .layers = SparseLayers::kListed,
                      .score = kernels::RouterScore::kSigmoid,
                      .spellings = kMimoSpellings,
                      .absent = {.num_experts = 256,
                                 .num_chosen = 8,
                                 .ffn_size = 2048,
                                 .renormalize = true}},
          .defaults = {.vocab_size = 152576,
                       .ffn_size = 16384,
                       .num_attention_heads = 64,
                       .num_key_value_heads = 4,
                       .head_dim = 192,
                       .value_head_dim = 128,
                       .max_position_embeddings = 131072,
                       .norm_eps = 1e-5,
                       .partial_rotary_factor = 0.334,
                       .rope_parameters = kMimoRope,
                       .sliding_window = 129,
                       .sliding_window_pattern = 6}};
}

inline constexpr ArchSpec kLagunaRows[] = {Laguna(), MimoV2Flash()};

}  // namespace mlc_native
