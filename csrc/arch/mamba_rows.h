// Rows of arch_table.cc: families of which most layers have Mamba-2, and others attention.
#pragma once

#include "arch/expert_rows.h"
#include "arch/mamba_fields.h"
#include "arch/tensor_names.h"

namespace mlc_native {

inline constexpr ProjectionName kMambaProjections[] = {
    {"mamba.in_proj", LinearRole::kDeltaInputs, Rows::kMambaInputs},
    {"mamba.out_proj", LinearRole::kDeltaOut, Rows::kHidden},
};
inline constexpr VectorName kMambaVectors[] = {
    {"mamba.conv1d.weight", VectorRole::kConvolution},
    {"mamba.conv1d.bias", VectorRole::kConvolutionBias},
    {"mamba.A_log", VectorRole::kDecay},
    {"mamba.dt_bias", VectorRole::kDecayBias},
    {"mamba.D", VectorRole::kSkip},
    {"mamba.norm.weight", VectorRole::kDeltaNorm},
};

inline constexpr ProjectionName kGraniteHybridFfn[] = {
    {"shared_mlp.input_linear", LinearRole::kGateUp, Rows::kGateUp},
    {"shared_mlp.output_linear", LinearRole::kDown, Rows::kHidden},
};
inline constexpr auto kGraniteHybridProjections =
    Join(kSeparateQkv, kOut, kMambaProjections, kGraniteHybridFfn);
inline constexpr auto kGraniteHybridSplit =
    Join(kSeparateQkv, kOut, kMambaProjections, kSeparateFfn);

inline constexpr ProjectionName kBambaFfn[] = {
    {"feed_forward.gate_proj", LinearRole::kGateUp, Rows::kFfn},
    {"feed_forward.up_proj", LinearRole::kGateUp, Rows::kFfn},
    {"feed_forward.down_proj", LinearRole::kDown, Rows::kHidden},
};
inline constexpr auto kBambaProjections = Join(kSeparateQkv, kOut, kMambaProjections, kBambaFfn);
inline constexpr NormName kBambaNorms[] = {
    {"input_layernorm", NormRole::kPreAttention},
    {"pre_ff_layernorm", NormRole::kPreFfn},
};

// Without experts, the block that every row passes is the only one.
constexpr ArchSpec GraniteMoeHybrid() {
  ArchSpec spec = GraniteMoeShared();
  spec.architecture = "GraniteMoeHybridForCausalLM";
  spec.projections = kGraniteHybridProjections;
  spec.split_projections = kGraniteHybridSplit;
  spec.vectors = kMambaVectors;
  spec.ffn_size_field = "shared_intermediate_size";
  spec.rope_rule = RopeRule::kIfNamed;
  spec.experts.may_have_none = true;
  spec.mamba = &kUsualMambaFields;
  return spec;
}

constexpr ArchSpec Bamba() {
  return {.architecture = "BambaForCausalLM",
          .projections = kBambaProjections,
          .norms = kBambaNorms,
          .names = {.final_norm = "final_layernorm"},
          .vectors = kMambaVectors,
          .qkv_bias = kAttentionBias,
          .out_bias = kAttentionBias,
          .ffn_bias = kMlpBias,
          .reads_partial_rotary_factor = true,
          .mamba = &kUsualMambaFields,
          .defaults = {.vocab_size = 128000,
                       .num_attention_heads = 32,
                       .num_key_value_heads = 8,
                       .max_position_embeddings = 262144,
                       .norm_eps = 1e-5,
                       .partial_rotary_factor = 0.5}};
}

// ---- Falcon-H1: attention and Mamba-2 beside each other in each layer ----

inline constexpr std::string_view kNo[] = {"false", "null"};
inline constexpr Requirement kWithoutProjectorBias[] = {
    {"projectors_bias", kNo, "a bias of what Mamba-2 gives"}};

constexpr ArchSpec FalconH1() {
  return {.architecture = "FalconH1ForCausalLM",
          .projections = kBambaProjections,
          .norms = kBambaNorms,
          .names = {.final_norm = "final_layernorm"},
          .requirements = kWithoutProjectorBias,
          .vectors = kMambaVectors,
          .qkv_bias = kAttentionBias,
          .out_bias = kAttentionBias,
          .ffn_bias = kMlpBias,
          .multipliers = {.embedding = "embedding_multiplier",
                          .of_tokens_only = true,
                          .logits = "lm_head_multiplier",
                          .absent_logits = 1},
          .mamba = &kFalconMambaFields,
          .attends_beside_mamba = true,
          .reads_matrix_scales = true,
          .defaults = {.vocab_size = 128000,
                       .num_attention_heads = 32,
                       .num_key_value_heads = 8,
                       .max_position_embeddings = 8192,
                       .norm_eps = 1e-5}};
}

// ---- Nemotron-H: each layer is one block ----

inline constexpr ProjectionName kNemotronHProjections[] = {
    {"mixer.q_proj", LinearRole::kQkv, Rows::kQ},
    {"mixer.k_proj", LinearRole::kQkv, Rows::kKv},
    {"mixer.v_proj", LinearRole::kQkv, Rows::kValues},
    {"mixer.o_proj", LinearRole::kOut, Rows::kHidden},
    {"mixer.in_proj", LinearRole::kDeltaInputs, Rows::kMambaInputs},
    {"mixer.out_proj", LinearRole::kDeltaOut, Rows::kHidden},
    {"mixer.up_proj", LinearRole::kGateUp, Rows::kFfn},
    {"mixer.down_proj", LinearRole::kDown, Rows::kHidden},
};
inline constexpr VectorName kNemotronHVectors[] = {
    {"mixer.conv1d.weight", VectorRole::kConvolution},
    {"mixer.conv1d.bias", VectorRole::kConvolutionBias},
    {"mixer.A_log", VectorRole::kDecay},
    {"mixer.dt_bias", VectorRole::kDecayBias},
    {"mixer.D", VectorRole::kSkip},
    {"mixer.norm.weight", VectorRole::kDeltaNorm},
};
inline constexpr NormName kNemotronHNorms[] = {{"norm", NormRole::kPreAttention}};
// The hub's, and that of the memory of transformers.
inline constexpr std::string_view kNemotronHPrefixes[] = {"backbone.", "model."};
inline constexpr std::string_view kNemotronHParts[] = {"mtp."};  // a head that guesses
inline constexpr ProjectionName kNemotronHRouter[] = {
    {"mixer.gate", LinearRole::kRouter, Rows::kExperts},
    {"mixer.shared_experts.up_proj", LinearRole::kSharedGateUp, Rows::kSharedFfn},
    {"mixer.shared_experts.down_proj", LinearRole::kSharedDown, Rows::kHidden},
    {"mixer.fc1_latent_proj", LinearRole::kExpertsIn, Rows::kExpertInput},
    {"mixer.fc2_latent_proj", LinearRole::kExpertsOut, Rows::kHidden},
};
inline constexpr ProjectionName kNemotronHEach[] = {
    {"mixer.experts.#.up_proj", LinearRole::kExpertGateUp, Rows::kExpertFfn},
    {"mixer.experts.#.down_proj", LinearRole::kExpertDown, Rows::kExpertInput},
};
inline constexpr ProjectionName kNemotronHJoined[] = {
    {"mixer.experts.up_proj", LinearRole::kExpertGateUp, Rows::kExpertFfn, ""},
    {"mixer.experts.down_proj", LinearRole::kExpertDown, Rows::kExpertInput, ""},
};
inline constexpr auto kNemotronHEachShared = Join(kNemotronHRouter, kNemotronHEach);
inline constexpr auto kNemotronHJoinedShared = Join(kNemotronHRouter, kNemotronHJoined);
inline constexpr ExpertSpelling kNemotronHSpellings[] = {
    {kNemotronHEachShared, "mixer.gate.e_score_correction_bias"},
    {kNemotronHJoinedShared, "mixer.gate.e_score_correction_bias"},
};

constexpr ArchSpec NemotronH() {
  return {.architecture = "NemotronHForCausalLM",
          .projections = kNemotronHProjections,
          .norms = kNemotronHNorms,
          .names = {.prefixes = kNemotronHPrefixes,
                    .embeddings = "embeddings.weight",
                    .final_norm = "norm_f"},
          .ignored_prefixes = kNemotronHParts,
          .vectors = kNemotronHVectors,
          .norm_eps_field = "layer_norm_epsilon",
          .ffn_bias = kMlpBias,
          .plain_ffn = true,
          .activation_field = "mlp_hidden_act",
          .default_activation = "relu2",
          .rope_rule = RopeRule::kNoLayer,
          .experts = {.num_experts = "n_routed_experts",
                      .shared_size = "moe_shared_expert_intermediate_size",
                      .latent_size = "moe_latent_size",
                      .renormalize = "norm_topk_prob",
                      .scale = "routed_scaling_factor",
                      .reads_groups = true,
                      .score = kernels::RouterScore::kSigmoid,
                      .spellings = kNemotronHSpellings,
                      .absent = {.num_experts = 8,
                                 .num_chosen = 2,
                                 .ffn_size = 7688,
                                 .shared_size = 7688,
                                 .renormalize = true}},
          .mamba = &kNemotronMambaFields,
          .has_single_blocks = true,
          .defaults = {.vocab_size = 131072,
                       .num_attention_heads = 32,
                       .num_key_value_heads = 8,
                       .head_dim = 128,
                       .max_position_embeddings = 4096,
                       .norm_eps = 1e-5}};
}

// ---- Mamba 2: no layer has anything else ----

inline constexpr ProjectionName kMamba2Projections[] = {
    {"mixer.in_proj", LinearRole::kDeltaInputs, Rows::kMambaInputs},
    {"mixer.out_proj", LinearRole::kDeltaOut, Rows::kHidden},
};

// No layer reads the sizes of heads and feed-forward blocks, and any position may be reached.
constexpr ArchSpec Mamba2() {
  return {.architecture = "Mamba2ForCausalLM",
          .projections = kMamba2Projections,
          .norms = kNemotronHNorms,
          .names = {.prefixes = kNemotronHPrefixes,
                    .embeddings = "embeddings.weight",
                    .final_norm = "norm_f"},
          .vectors = kNemotronHVectors,
          .norm_eps_field = "layer_norm_epsilon",
          .rope_rule = RopeRule::kNoLayer,
          .mamba = &kMamba2Fields,
          .has_single_blocks = true,
          .has_mamba_alone = true,
          .defaults = {.vocab_size = 32768,
                       .ffn_size = 1,
                       .num_attention_heads = 1,
                       .max_position_embeddings = 1048576,
                       .norm_eps = 1e-5}};
}

inline constexpr ArchSpec kMambaRows[] = {GraniteMoeHybrid(), Bamba(), FalconH1(), NemotronH(),
                                          Mamba2()};

}  // namespace mlc_native
