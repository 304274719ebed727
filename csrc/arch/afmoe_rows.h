// Rows of arch_table.cc: AFMoE (Trinity), with gates of what attention gives and sigmoid experts.
#pragma once

#include "arch/expert_rows.h"

namespace mlc_native {

inline constexpr ProjectionName kAfmoeGates[] = {
    {"self_attn.gate_proj", LinearRole::kQkv, Rows::kAttentionGates, ".weight", ""}};
inline constexpr auto kAfmoeProjections = Join(kAfmoeGates, kSeparateQkv, kOut, kSeparateFfn);
inline constexpr NormName kAfmoeNorms[] = {
    {"input_layernorm", NormRole::kPreAttention},
    {"post_attention_layernorm", NormRole::kPostAttention},
    {"pre_mlp_layernorm", NormRole::kPreFfn},
    {"post_mlp_layernorm", NormRole::kPostFfn},
    {"self_attn.q_norm", NormRole::kQ},
    {"self_attn.k_norm", NormRole::kK},
};
inline constexpr ProjectionName kAfmoeRouter[] = {
    {"mlp.router.gate", LinearRole::kRouter, Rows::kExperts}};
inline constexpr auto kAfmoeEach = Join(kAfmoeRouter, kEachExpert, kGlmShared);
inline constexpr auto kAfmoeJoined = Join(kAfmoeRouter, kJoinedExperts, kGlmShared);
inline constexpr ExpertSpelling kAfmoeSpellings[] = {{kAfmoeEach, "mlp.expert_bias"},
                                                     {kAfmoeJoined, "mlp.expert_bias"}};

constexpr ArchSpec Afmoe() {
  return {.architecture = "AfmoeForCausalLM",
          .projections = kAfmoeProjections,
          .norms = kAfmoeNorms,
          .qk_norm = QkNorm::kPerHead,
          .qkv_bias = kAttentionBias,
          .out_bias = kAttentionBias,
          .multipliers = {.root_if = "mup_enabled"},
          .window_rule = WindowRule::kEveryButNth,
          .window_pattern_field = "global_attn_every_n_layers",
          .rope_rule = RopeRule::kInWindows,
          .experts = {.num_experts = "num_experts",
                      .num_shared = "num_shared_experts",
                      .scale = "route_scale",
                      .first_sparse = "num_dense_layers",
                      .layers = SparseLayers::kBehindFirst,
                      .score = kernels::RouterScore::kSigmoid,
                      .spellings = kAfmoeSpellings,
                      .absent = {.num_experts = 64,
                                 .num_chosen = 6,
                                 .ffn_size = 1408,
                                 .num_shared = 2,
                                 .renormalize = true,
                                 .first_sparse = 1}},
          .attention_gates = AttentionGates::kOfElements,
          .defaults = {.vocab_size = 200192,
                       .num_attention_heads = 16,
                       .head_dim = 128,
                       .max_position_embeddings = 16384,
                       .norm_eps = 1e-5,
                       .sliding_window = 1024,
                       .sliding_window_pattern = 4}};
}

inline constexpr ArchSpec kAfmoeRows[] = {Afmoe()};

}  // namespace mlc_native
