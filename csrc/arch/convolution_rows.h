// Rows of arch_table.cc: LFM2, of which most layers have a gated short convolution, and the others
// attention.
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
  spec.adjusts_ffn_size = true;
  return spec;
}

inline constexpr ArchSpec kConvolutionRows[] = {Lfm2Dense(), Lfm2Moe()};

}  // namespace mlc_native
