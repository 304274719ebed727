// Rows of arch_table.cc: families with experts whose layers with a window have rope and whose
// others have none, mostly.
#pragma once

#include "arch/dense_rows.h"
#include "arch/expert_rows.h"

namespace mlc_native {

// The shared expert of Qwen2-MoE, without its gate.
inline constexpr ProjectionName kFlintShared[] = {
    {"mlp.shared_expert.gate_proj", LinearRole::kSharedGateUp, Rows::kSharedFfn},
    {"mlp.shared_expert.up_proj", LinearRole::kSharedGateUp, Rows::kSharedFfn},
    {"mlp.shared_expert.down_proj", LinearRole::kSharedDown, Rows::kHidden},
};
inline constexpr auto kFlintEach = Join(kRouterGate, kEachExpert, kFlintShared);
inline constexpr auto kFlintJoined = Join(kRouterGate, kJoinedExperts, kFlintShared);
inline constexpr ExpertSpelling kFlintSpellings[] = {{kFlintEach}, {kFlintJoined}};
inline constexpr OtherName kFlintHub[] = {{"self_attn.sinks", "self_attn.softmax_offset"}};

inline constexpr auto kKolibriNorms = Join(kGlm4Norms, kQkNorms);
inline constexpr ExpertSpelling kKolibriSpellings[] = {
    {kGlmEach, "moe.router.expert_bias"},
    {kGlmEach, "mlp.gate.e_score_correction_bias"},
    {kGlmJoined, "mlp.gate.e_score_correction_bias"},
};
inline constexpr OtherName kKolibriHub[] = {
    {"post_self_attn_layernorm", "post_attn_norm"},
    {"post_mlp_layernorm", "post_ffn_norm"},
};

constexpr ArchSpec Flint() {
  return {.architecture = "FlintForCausalLM",
          .projections = kSeparateProjections,
          .norms = kPreNormsQk,
          .other_names = kFlintHub,
          .vectors = kGptOssVectors,
          .qk_norm = QkNorm::kPerHead,
          .qkv_bias = kAttentionBias,
          .out_bias = kAttentionBias,
          .window_rule = WindowRule::kEveryButSecondOfFour,
          .rope_rule = RopeRule::kInWindows,
          .experts = {.num_experts = "num_experts",
                      .shared_size = "shared_expert_intermediate_size",
                      .renormalize = "norm_topk_prob",
                      .layers = SparseLayers::kEveryStep,
                      .score = kernels::RouterScore::kSigmoid,
                      .spellings = kFlintSpellings,
                      .absent = {.num_experts = 256,
                                 .num_chosen = 6,
                                 .ffn_size = 512,
                                 .shared_size = 1024,
                                 .renormalize = true,
                                 .num_dense = 2}},
          .defaults = {.vocab_size = 150144,
                       .ffn_size = 6144,
                       .num_attention_heads = 32,
                       .num_key_value_heads = 4,
                       .head_dim = 128,
                       .max_position_embeddings = 262144,
                       .sliding_window = 513}};
}

constexpr ArchSpec Kolibri() {
  return {.architecture = "Kolibri1ForCausalLM",
          .projections = kSeparateProjections,
          .norms = kKolibriNorms,
          .other_names = kKolibriHub,
          .ffn_size_field = "moe_intermediate_size",
          .qk_norm = QkNorm::kPerHead,
          .window_rule = WindowRule::kEveryButNth,
          .rope_rule = RopeRule::kInWindowsIfAny,
          .experts = {.num_experts = "num_experts",
                      .shared_size = "shared_expert_intermediate_size",
                      .renormalize = "norm_topk_prob",
                      .score = kernels::RouterScore::kSigmoid,
                      .judges_logits = true,
                      .spellings = kKolibriSpellings,
                      .absent = {.num_experts = 384,
                                 .num_chosen = 6,
                                 .ffn_size = 512,
                                 .shared_size = 512}},
          .defaults = {.vocab_size = 128000,
                       .ffn_size = 512,
                       .num_attention_heads = 48,
                       .num_key_value_heads = 4,
                       .head_dim = 128,
                       .max_position_embeddings = 262144,
                       .sliding_window = 513,
                       .sliding_window_pattern = 5}};
}

// Blocks are parallel, as in Cohere 2. The experts of a row and the shared one may be averaged.
constexpr ArchSpec Cohere2Moe() {
  ArchSpec spec = Cohere2();
  spec.architecture = "Cohere2MoeForCausalLM";
  spec.own_ffn_size_field = "prefix_dense_intermediate_size";
  spec.is_rms_with_eps = true;
  spec.window_rule = WindowRule::kEveryButNthOfKind;
  spec.rope_rule = RopeRule::kInWindowsOrDense;
  spec.experts = {.num_experts = "num_experts",
                  .ffn_size = "intermediate_size",
                  .num_shared = "num_shared_experts",
                  .renormalize = "norm_topk_prob",
                  .score_name = "expert_selection_fn",
                  .combination = "shared_expert_combination_strategy",
                  .layers = SparseLayers::kListedOrBehindFirst,
                  .judges_logits = true,
                  .spellings = kDeepSeekV2Spellings,
                  .absent = {.num_experts = 8,
                             .num_chosen = 2,
                             .ffn_size = 22528,
                             .renormalize = true,
                             .first_sparse = 0}};
  spec.defaults.vocab_size = 256000;
  spec.defaults.ffn_size = 22528;
  spec.defaults.num_attention_heads = 64;
  spec.defaults.head_dim = 128;
  return spec;
}

inline constexpr ArchSpec kWindowExpertRows[] = {Flint(), Kolibri(), Cohere2Moe()};

}  // namespace mlc_native
