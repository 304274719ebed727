// Rows of arch_table.cc: families of which all or most layers have Mamba-1, the selective scan.
#pragma once

#include "arch/mamba_rows.h"

namespace mlc_native {

// ---- Mamba and Falcon Mamba: no layer has anything else ----

inline constexpr ProjectionName kScanProjections[] = {
    {"mixer.in_proj", LinearRole::kDeltaInputs, Rows::kScanInputs},
    {"mixer.x_proj", LinearRole::kScanInputs, Rows::kScanStepInputs},
    {"mixer.dt_proj", LinearRole::kScanSteps, Rows::kScanChannels},
    {"mixer.out_proj", LinearRole::kDeltaOut, Rows::kHidden},
};
inline constexpr VectorName kScanVectors[] = {
    {"mixer.conv1d.weight", VectorRole::kConvolution},
    {"mixer.conv1d.bias", VectorRole::kConvolutionBias},
    {"mixer.A_log", VectorRole::kDecay},
    {"mixer.dt_proj.bias", VectorRole::kDecayBias},
    {"mixer.D", VectorRole::kSkip},
};
// Of steps, keys and queries.
inline constexpr VectorName kScanNormsOfOnes[] = {
    {"", VectorRole::kScanNorm}, {"", VectorRole::kScanNorm}, {"", VectorRole::kScanNorm}};
inline constexpr auto kFalconMambaVectors = Join(kScanVectors, kScanNormsOfOnes);
// The first name is that of memory, the second one that of the first checkpoints.
inline constexpr OtherName kFirstMambaNames[] = {{"embeddings.weight", "embedding.weight"}};

constexpr ArchSpec Mamba1() {
  ArchSpec spec = Mamba2();
  spec.architecture = "MambaForCausalLM";
  spec.projections = kScanProjections;
  spec.other_names = kFirstMambaNames;
  spec.vectors = kScanVectors;
  spec.mamba = nullptr;
  spec.scan = &kScanFields;
  spec.defaults.vocab_size = 50280;
  spec.defaults.tie_word_embeddings = true;
  return spec;
}

constexpr ArchSpec FalconMamba() {
  ArchSpec spec = Mamba1();
  spec.architecture = "FalconMambaForCausalLM";
  spec.vectors = kFalconMambaVectors;
  spec.scan = &kPlainNormScanFields;
  return spec;
}

// ---- Jamba: some layers have attention without rope, and some have experts ----

inline constexpr ProjectionName kJambaScan[] = {
    {"mamba.in_proj", LinearRole::kDeltaInputs, Rows::kScanInputs},
    {"mamba.x_proj", LinearRole::kScanInputs, Rows::kScanStepInputs},
    {"mamba.dt_proj", LinearRole::kScanSteps, Rows::kScanChannels},
    {"mamba.out_proj", LinearRole::kDeltaOut, Rows::kHidden},
};
inline constexpr auto kJambaProjections = Join(kSeparateQkv, kOut, kJambaScan, kBambaFfn);
inline constexpr VectorName kJambaVectors[] = {
    {"mamba.conv1d.weight", VectorRole::kConvolution},
    {"mamba.conv1d.bias", VectorRole::kConvolutionBias},
    {"mamba.A_log", VectorRole::kDecay},
    {"mamba.dt_proj.bias", VectorRole::kDecayBias},
    {"mamba.D", VectorRole::kSkip},
    {"mamba.dt_layernorm.weight", VectorRole::kScanNorm},
    {"mamba.b_layernorm.weight", VectorRole::kScanNorm},
    {"mamba.c_layernorm.weight", VectorRole::kScanNorm},
};
inline constexpr ProjectionName kJambaEach[] = {
    {"feed_forward.router", LinearRole::kRouter, Rows::kExperts},
    {"feed_forward.experts.#.gate_proj", LinearRole::kExpertGateUp, Rows::kExpertFfn},
    {"feed_forward.experts.#.up_proj", LinearRole::kExpertGateUp, Rows::kExpertFfn},
    {"feed_forward.experts.#.down_proj", LinearRole::kExpertDown, Rows::kHidden},
};
inline constexpr ProjectionName kJambaJoined[] = {
    {"feed_forward.router", LinearRole::kRouter, Rows::kExperts},
    {"feed_forward.experts.gate_up_proj", LinearRole::kExpertGateUp, Rows::kExpertGateUp, ""},
    {"feed_forward.experts.down_proj", LinearRole::kExpertDown, Rows::kHidden, ""},
};
inline constexpr ExpertSpelling kJambaSpellings[] = {{kJambaEach}, {kJambaJoined}};

constexpr ArchSpec Jamba() {
  return {.architecture = "JambaForCausalLM",
          .projections = kJambaProjections,
          .norms = kBambaNorms,
          .names = {.final_norm = "final_layernorm"},
          .vectors = kJambaVectors,
          .rope_rule = RopeRule::kNoLayer,
          .experts = {.num_experts = "num_experts",
                      .one_is_none = true,
                      .ffn_size = "intermediate_size",
                      .layers = SparseLayers::kPeriod,
                      .spellings = kJambaSpellings,
                      .absent = {.num_experts = 16, .num_chosen = 2, .ffn_size = 14336}},
          .scan = &kJambaFields,
          .defaults = {.vocab_size = 65536,
                       .ffn_size = 14336,
                       .num_attention_heads = 32,
                       .num_key_value_heads = 8,
                       .max_position_embeddings = 262144}};
}

inline constexpr ArchSpec kScanRows[] = {Mamba1(), FalconMamba(), Jamba()};

}  // namespace mlc_native
