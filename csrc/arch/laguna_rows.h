// Rows of arch_table.cc: Laguna, whose layers may have numbers of query heads of their own, with
// gates of what attention gives and sigmoid experts.
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

inline constexpr ArchSpec kLagunaRows[] = {Laguna()};

}  // namespace mlc_native
