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

inline constexpr ArchSpec kMambaRows[] = {GraniteMoeHybrid(), Bamba()};

}  // namespace mlc_native
