// Rows of arch_table.cc: LFM2 and LFM3, of which most layers have a gated short convolution, and
// the others attention.
#pragma once

#include "arch/expert_rows.h"
#include "arch/tensor_names.h"

namespace mlc_native {

inline constexpr ProjectionName kLfm2Out[] = {
    {"self_attn.out_proj", LinearRole::kOut, Rows::kHidden}};
inline constexpr ProjectionName kLfm2Convolution[] = {
    {"conv.in_proj", LinearRole::kDeltaInputs, Rows::kConvolutionInputs},
    {"conv.out_proj", LinearRole::kDeltaOut, Rows::kHidden},
};
inline constexpr ProjectionName kLfm2Ffn[] = {
    {"feed_forward.w1", LinearRole::kGateUp, Rows::kFfn},
    {"feed_forward.w3", LinearRole::kGateUp, Rows::kFfn},
    {"feed_forward.w2", LinearRole::kDown, Rows::kHidden},
};
inline constexpr auto kLfm2Projections = Join(kSeparateQkv, kLfm2Out, kLfm2Convolution, kLfm2Ffn);
inline constexpr NormName kLfm2Norms[] = {
    {"operator_norm", NormRole::kPreAttention},
    {"ffn_norm", NormRole::kPreFfn},
    {"self_attn.q_layernorm", NormRole::kQ},
    {"self_attn.k_layernorm", NormRole::kK},
};
inline constexpr VectorName kLfm2Vectors[] = {{"conv.conv.weight", VectorRole::kConvolution}};
inline constexpr ProjectionName kLfm2Router[] = {
    {"feed_forward.gate", LinearRole::kRouter, Rows::kExperts}};
inline constexpr ProjectionName kLfm2Each[] = {
    {"feed_forward.experts.#.w1", LinearRole::kExpertGateUp, Rows::kExpertFfn},
    {"feed_forward.experts.#.w3", LinearRole::kExpertGateUp, Rows::kExpertFfn},
    {"feed_forward.experts.#.w2", LinearRole::kExpertDown, Rows::kHidden},
};
inline constexpr ProjectionName kLfm2Joined[] = {
    {"feed_forward.experts.gate_up_proj", LinearRole::kExpertGateUp, Rows::kExpertGateUp, ""},
    {"feed_forward.experts.down_proj", LinearRole::kExpertDown, Rows::kHidden, ""},
};
inline constexpr auto kLfm2EachExpert = Join(kLfm2Router, kLfm2Each);
inline constexpr auto kLfm2JoinedExperts = Join(kLfm2Router, kLfm2Joined);
inline constexpr ExpertSpelling kLfm2Spellings[] = {
    {kLfm2EachExpert, "feed_forward.expert_bias"},
    {kLfm2JoinedExperts, "feed_forward.expert_bias"},
    {kLfm2EachExpert},
    {kLfm2JoinedExperts},
};

constexpr ArchSpec Lfm2(std::string_view architecture) {
  return {
      .architecture = architecture,
      .projections = kLfm2Projections,
      .norms = kLfm2Norms,
      .names = {.final_norm = "embedding_norm"},
      .vectors = kLfm2Vectors,
      .qk_norm = QkNorm::kPerHead,
      .norm_eps_field = "norm_eps",
      .has_short_convolutions = true,
      .defaults = {.vocab_size = 65536,
                   .num_attention_heads = 32,
                   .num_key_value_heads = 8,
                   .max_position_embeddings = 128000,
                   .norm_eps = 1e-5,
                   .rope_theta = 1e6,
                   .tie_word_embeddings = true},
  };
}

constexpr ArchSpec Lfm2Moe() {
  ArchSpec spec = Lfm2("Lfm2MoeForCausalLM");
  spec.experts = {.num_experts = "num_experts",
                  .renormalize = "norm_topk_prob",
                  .scale = "routed_scaling_factor",
                  .first_sparse = "num_dense_layers",
                  .layers = SparseLayers::kBehindFirst,
                  .score = kernels::RouterScore::kSigmoid,
                  .spellings = kLfm2Spellings,
                  .absent = {.num_experts = 32,
                             .num_chosen = 4,
                             .ffn_size = 1792,
                             .renormalize = true,
                             .first_sparse = 2}};
  return spec;
}

constexpr ArchSpec Lfm2Dense() {
  ArchSpec spec = Lfm2("Lfm2ForCausalLM");
  spec.own_ffn_size_field = "block_ff_dim";
  spec.adjusts_ffn_size = true;
  return spec;
}

// ---- LFM3 ----

inline constexpr ProjectionName kHeadGates[] = {
    {"self_attn.g_proj", LinearRole::kQkv, Rows::kAttentionGates, ".weight", ""}};
inline constexpr auto kLfm3Projections =
    Join(kHeadGates, kSeparateQkv, kOut, kLfm2Convolution, kLfm2Ffn);
inline constexpr NormName kLfm3Norms[] = {
    {"operator_norm", NormRole::kPreAttention},
    {"post_operator_norm", NormRole::kPostAttention},
    {"ffn_norm", NormRole::kPreFfn},
    {"post_ffn_norm", NormRole::kPostFfn},
    {"self_attn.q_norm", NormRole::kQ},
    {"self_attn.k_norm", NormRole::kK},
};
inline constexpr std::string_view kLfm3Rope =
    R"({"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5,
                           "rope_theta": 1000000.0}})";

constexpr ArchSpec Lfm3() {
  ArchSpec spec = Lfm2("Lfm3ForCausalLM");
  spec.projections = kLfm3Projections;
  spec.norms = kLfm3Norms;
  spec.has_post_norms = {.field = "use_sandwich_norm", .absent = true};
  spec.attention_gates = AttentionGates::kOfHeads;
  spec.has_attention_gates = {.field = "use_attention_gate", .absent = true};
  spec.qkv_bias = kAttentionBias;
  spec.out_bias = kAttentionBias;
  spec.window_rule = WindowRule::kEveryFourth;
  spec.local_rope = true;
  spec.proportional_rope = true;
  spec.defaults.vocab_size = 128000;
  spec.defaults.num_attention_heads = 16;
  spec.defaults.num_key_value_heads = 4;
  spec.defaults.head_dim = 128;
  spec.defaults.rope_parameters = kLfm3Rope;
  spec.defaults.sliding_window = 256;
  spec.defaults.conv_width = 7;
  return spec;
}

inline constexpr ArchSpec kConvolutionRows[] = {Lfm2Dense(), Lfm2Moe(), Lfm3()};

}  // namespace mlc_native
