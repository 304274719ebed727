// Rows of arch_table.cc: texts of Qwen's models that also hear, see and speak. What makes the text
// is their thinker, alone or beside the talker.
#pragma once

#include "arch/dense_rows.h"
#include "arch/expert_rows.h"

namespace mlc_native {

inline constexpr std::string_view kThinkerParts[] = {"visual.", "audio_tower.", "model.visual.",
                                                     "model.audio_tower."};
inline constexpr std::string_view kOmniParts[] = {"thinker.visual.", "thinker.audio_tower.",
                                                  "talker.", "token2wav.", "code2wav."};
inline constexpr std::string_view kOmniPrefixes[] = {"thinker.model."};
inline constexpr std::string_view kOmniHeads[] = {"thinker.lm_head.weight"};

constexpr ArchSpec Qwen25Thinker() {
  ArchSpec spec = Qwen2Vl("Qwen2_5OmniThinkerForConditionalGeneration");
  spec.ignored_prefixes = kThinkerParts;
  spec.defaults = {.num_attention_heads = 28,
                   .num_key_value_heads = 4,
                   .max_position_embeddings = 32768,
                   .rope_theta = 1e6,
                   .sliding_window = 32768};
  return spec;
}

constexpr ArchSpec Qwen3Thinker() {
  return {.architecture = "Qwen3OmniMoeThinkerForConditionalGeneration",
          .config_section = "text_config",
          .projections = kSeparateProjections,
          .norms = kPreNormsQk,
          .ignored_prefixes = kThinkerParts,
          .qk_norm = QkNorm::kPerHead,
          .qkv_bias = kAttentionBias,
          .out_bias = kAttentionBias,
          .reads_mrope = true,
          .experts = {.num_experts = "num_experts",
                      .renormalize = "norm_topk_prob",
                      .layers = SparseLayers::kEveryStep,
                      .spellings = kQwenSpellings,
                      .absent = {.num_experts = 128,
                                 .num_chosen = 8,
                                 .ffn_size = 768,
                                 .renormalize = true}},
          .defaults = {.num_attention_heads = 28,
                       .num_key_value_heads = 4,
                       .max_position_embeddings = 32768,
                       .rope_theta = 1e6}};
}

// `thinker` within the whole model.
constexpr ArchSpec Omni(std::string_view architecture, ArchSpec thinker) {
  thinker.architecture = architecture;
  thinker.config_section = "thinker_config.text_config";
  thinker.names.prefixes = kOmniPrefixes;
  thinker.names.heads = kOmniHeads;
  thinker.ignored_prefixes = kOmniParts;
  return thinker;
}

inline constexpr ArchSpec kOmniRows[] = {
    Qwen25Thinker(),
    Omni("Qwen2_5OmniForConditionalGeneration", Qwen25Thinker()),
    Omni("Qwen2_5OmniModel", Qwen25Thinker()),  // as its first checkpoints say
    Qwen3Thinker(),
    Omni("Qwen3OmniMoeForConditionalGeneration", Qwen3Thinker()),
};

}  // namespace mlc_native
