// Rows of arch_table.cc: Llama 4. Three of four layers have rope, and attend to a chunk of the
// context; the others have no rope, and scale their queries by position. Only layers with rope
// normalize q and k, without weights. What an expert reads is scaled by its score.
#pragma once

#include "arch/tensor_names.h"

namespace mlc_native {

inline constexpr ProjectionName kLlama4Ffn[] = {
    {"feed_forward.gate_proj", LinearRole::kGateUp, Rows::kFfn},
    {"feed_forward.up_proj", LinearRole::kGateUp, Rows::kFfn},
    {"feed_forward.down_proj", LinearRole::kDown, Rows::kHidden},
};
inline constexpr auto kLlama4Projections = Join(kSeparateQkv, kOut, kLlama4Ffn);
inline constexpr NormName kNormsWithoutWeights[] = {{"", NormRole::kQ}, {"", NormRole::kK}};
inline constexpr auto kLlama4Norms = Join(kPreNorms, kNormsWithoutWeights);

inline constexpr ProjectionName kLlama4Router[] = {
    {"feed_forward.router", LinearRole::kRouter, Rows::kExperts},
    {"feed_forward.shared_expert.gate_proj", LinearRole::kSharedGateUp, Rows::kSharedFfn},
    {"feed_forward.shared_expert.up_proj", LinearRole::kSharedGateUp, Rows::kSharedFfn},
    {"feed_forward.shared_expert.down_proj", LinearRole::kSharedDown, Rows::kHidden},
};
constexpr ProjectionName Llama4Experts(std::string_view name, LinearRole role, Rows rows) {
  return {.name = name, .role = role, .rows = rows, .ending = "", .transposed = true};
}
inline constexpr ProjectionName kLlama4Experts[] = {
    Llama4Experts("feed_forward.experts.gate_up_proj", LinearRole::kExpertGateUp,
                  Rows::kExpertGateUp),
    Llama4Experts("feed_forward.experts.down_proj", LinearRole::kExpertDown, Rows::kHidden),
};
// Of quantized checkpoints.
inline constexpr ProjectionName kLlama4EachExpert[] = {
    {"feed_forward.experts.#.gate_proj", LinearRole::kExpertGateUp, Rows::kExpertFfn},
    {"feed_forward.experts.#.up_proj", LinearRole::kExpertGateUp, Rows::kExpertFfn},
    {"feed_forward.experts.#.down_proj", LinearRole::kExpertDown, Rows::kHidden},
};
inline constexpr auto kLlama4Joined = Join(kLlama4Router, kLlama4Experts);
inline constexpr auto kLlama4Each = Join(kLlama4Router, kLlama4EachExpert);
inline constexpr ExpertSpelling kLlama4Spellings[] = {{kLlama4Joined}, {kLlama4Each}};

inline constexpr std::string_view kLlama4Parts[] = {"vision_model.", "multi_modal_projector."};

constexpr ArchSpec Llama4() {
  return {.architecture = "Llama4ForCausalLM",
          .projections = kLlama4Projections,
          .norms = kLlama4Norms,
          .ffn_size_field = "intermediate_size_mlp",
          .qk_norm = QkNorm::kPerHead,
          .has_qk_norm = {.field = "use_qk_norm", .absent = true},
          .rope_before_qk_norm = true,
          .qk_norm_needs_rope = true,
          .qkv_bias = kAttentionBias,
          .out_bias = kAttentionBias,
          .interleaved_rope = true,
          .query_scaling = QueryScalingRule::kWithoutRope,
          .window_rule = WindowRule::kChunksWithRope,
          .rope_rule = RopeRule::kFieldSays,
          .experts = {.num_experts = "num_local_experts",
                      .ffn_size = "intermediate_size",
                      .shared_size = "intermediate_size",
                      .scales_inputs = true,
                      .layers = SparseLayers::kInterleaved,
                      .score = kernels::RouterScore::kSigmoid,
                      .judges_logits = true,
                      .spellings = kLlama4Spellings,
                      .absent = {.num_experts = 16,
                                 .num_chosen = 1,
                                 .ffn_size = 8192,
                                 .shared_size = 8192}},
          .defaults = {.vocab_size = 202048,
                       .ffn_size = 16384,
                       .num_attention_heads = 40,
                       .num_key_value_heads = 8,
                       .head_dim = 128,
                       .max_position_embeddings = 131072,
                       .norm_eps = 1e-5,
                       .rope_theta = 5e5}};
}

constexpr ArchSpec Llama4WithVision() {
  ArchSpec spec = Llama4();
  spec.architecture = "Llama4ForConditionalGeneration";
  spec.config_section = "text_config";
  spec.ignored_prefixes = kLlama4Parts;
  return spec;
}

inline constexpr ArchSpec kLlama4Rows[] = {Llama4(), Llama4WithVision()};

}  // namespace mlc_native
