// Rows of arch_table.cc: families of which some layers have Kimi Delta Attention, and the others
// latent attention.
#pragma once

#include "arch/other_expert_rows.h"

namespace mlc_native {

inline constexpr ProjectionName kKimiDelta[] = {
    {"self_attn.q_proj", LinearRole::kDeltaInputs, Rows::kDeltaKeys},
    {"self_attn.k_proj", LinearRole::kDeltaInputs, Rows::kDeltaKeys},
    {"self_attn.v_proj", LinearRole::kDeltaInputs, Rows::kDeltaValues},
    {"self_attn.f_a_proj", LinearRole::kDeltaInputs, Rows::kDeltaRank},
    {"self_attn.g_a_proj", LinearRole::kDeltaInputs, Rows::kDeltaRank},
    {"self_attn.b_proj", LinearRole::kDeltaGates, Rows::kDeltaHeads},
    {"self_attn.f_b_proj", LinearRole::kDeltaDecays, Rows::kDeltaChannels},
    {"self_attn.g_b_proj", LinearRole::kDeltaOutGates, Rows::kDeltaValues},
    {"self_attn.o_proj", LinearRole::kDeltaOut, Rows::kHidden},
};
inline constexpr auto kKimiProjections =
    Join(kLatentQueries, kLatentKeyValues, kQueryUp, kKeyValueUp, kOut, kKimiDelta, kSeparateFfn);
inline constexpr auto kKimiDirectQueries =
    Join(kDirectQueries, kLatentKeyValues, kKeyValueUp, kOut, kKimiDelta, kSeparateFfn);
inline constexpr VectorName kKimiVectors[] = {
    {"self_attn.q_conv1d.weight", VectorRole::kConvolution},
    {"self_attn.k_conv1d.weight", VectorRole::kConvolution},
    {"self_attn.v_conv1d.weight", VectorRole::kConvolution},
    {"self_attn.A_log", VectorRole::kDecay, true},
    {"self_attn.dt_bias", VectorRole::kDecayBias},
    {"self_attn.o_norm.weight", VectorRole::kDeltaNorm},
};
inline constexpr ProjectionName kKimiShared[] = {
    {"block_sparse_moe.shared_experts.gate_proj", LinearRole::kSharedGateUp, Rows::kSharedFfn},
    {"block_sparse_moe.shared_experts.up_proj", LinearRole::kSharedGateUp, Rows::kSharedFfn},
    {"block_sparse_moe.shared_experts.down_proj", LinearRole::kSharedDown, Rows::kHidden},
};
inline constexpr auto kKimiEach = Join(kMixtralEach, kKimiShared);
// The hub's, that of the memory of transformers, and that of GGUF files.
inline constexpr ExpertSpelling kKimiSpellings[] = {
    {kKimiEach, "block_sparse_moe.gate.e_score_correction_bias"},
    {kGlmJoined, "mlp.gate.e_score_correction_bias"},
    {kGlmEach, "mlp.gate.e_score_correction_bias"},
};
// What transformers writes, of layers without experts; then how its memory has the tensors.
inline constexpr OtherName kKimiOtherNames[] = {
    {".mlp.", ".block_sparse_moe."},
    {".q_conv1d.", ".conv1d."},
    {".self_attn.", ".self_attn.forget_gate."},
};
inline constexpr ConfigFields::Spelling kKimiFields[] = {
    {"max_position_embeddings", "model_max_length"},
    {"norm_topk_prob", "moe_renormalize"},
    {"n_group", "num_expert_group"},
    {"num_experts_per_tok", "num_experts_per_token"},
    {"n_shared_experts", "num_shared_experts"},
};
inline constexpr std::string_view kYesOrNull[] = {"true", "null"};
inline constexpr std::string_view kSigmoidOrNull[] = {"sigmoid", "null"};
inline constexpr Requirement kKimiRequirements[] = {
    {"moe_layer_freq", kOneOrNull, "layers without experts between those that have some"},
    {"mla_use_nope", kYesOrNull, "a rope in layers with latent attention"},
    {"moe_router_activation_func", kSigmoidOrNull, "another score of experts"},
};

constexpr ArchSpec KimiLinear() {
  ArchSpec spec = WithLatentAttention("KimiLinearForCausalLM");
  spec.projections = kKimiProjections;
  spec.other_names = kKimiOtherNames;
  spec.requirements = kKimiRequirements;
  spec.field_spellings = kKimiFields;
  spec.vectors = kKimiVectors;
  spec.interleaved_rope = false;
  spec.rope_rule = RopeRule::kNoLayer;
  spec.has_delta_layers = true;
  spec.decays_channels = true;
  spec.experts.num_experts = "num_experts";
  spec.experts.layers = SparseLayers::kListedOrBehindFirst;
  spec.experts.spellings = kKimiSpellings;
  spec.experts.absent = {.num_experts = 256,
                         .num_chosen = 8,
                         .ffn_size = 1024,
                         .num_shared = 1,
                         .renormalize = true,
                         .scale = 2.446};
  spec.latent.direct_queries = kKimiDirectQueries;
  spec.latent.absent.q_rank = 0;
  spec.defaults = {.vocab_size = 163840,
                   .num_attention_heads = 32,
                   .max_position_embeddings = 1048576,
                   .norm_eps = 1e-5};
  return spec;
}

inline constexpr ArchSpec kKimiRows[] = {KimiLinear()};

}  // namespace mlc_native
