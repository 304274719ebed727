// Rows of arch_table.cc: Gemma 3n, whose rows have several residual streams (AltUp), and whose
// layers have inputs of their own, LAuReL beside attention, and gates that are cut.
#pragma once

#include "arch/gemma4_rows.h"
#include "arch/tensor_names.h"

namespace mlc_native {

inline constexpr NormName kGemma3nOwnNorms[] = {
    {"laurel.post_laurel_norm", NormRole::kLaurel},
    {"altup.router_norm", NormRole::kStreamRouter},
};
inline constexpr auto kGemma3nNorms =
    Join(kSandwichNorms, kQkNorms, kNormOfValues, kNormOfLayerInputs, kGemma3nOwnNorms);
inline constexpr ProjectionName kLaurel[] = {
    {"laurel.linear_left", LinearRole::kLaurelDown, Rows::kLaurel},
    {"laurel.linear_right", LinearRole::kLaurelUp, Rows::kHidden},
};
inline constexpr auto kGemma3nProjections =
    Join(kSeparateQkv, kOut, kSeparateFfn, kLayerInputs, kLaurel);
inline constexpr VectorName kGemma3nVectors[] = {
    {"altup.modality_router.weight", VectorRole::kStreamRouter},
    {"altup.prediction_coefs.weight", VectorRole::kStreamPredictions},
    {"altup.correction_coefs.weight", VectorRole::kStreamCorrections},
    {"altup.correct_output_scale", VectorRole::kStreamScale},
};

// ---- Rows ----

constexpr ArchSpec Gemma3n(std::string_view architecture) {
  return {
      .architecture = architecture,
      .projections = kGemma3nProjections,
      .norms = kGemma3nNorms,
      .vectors = kGemma3nVectors,
      .qk_norm = QkNorm::kPerHead,
      .qkv_bias = kAttentionBias,
      .out_bias = kAttentionBias,
      .activation_field = "hidden_activation",
      .default_activation = "gelu_pytorch_tanh",
      .multipliers = {.sqrt_hidden_size = true, .plain_attention = true},
      .reads_final_soft_cap = true,
      .window_rule = WindowRule::kEveryButNth,
      .local_rope = true,
      .local_rope_theta_field = "rope_local_base_freq",
      .reads_layer_inputs = true,
      .reads_ffn_sizes = true,
      .shares_last_keys = true,
      .cuts_gates = true,
      .has_residual_streams = true,
      .defaults = {.vocab_size = 262400,
                   .ffn_size = 16384,
                   .num_attention_heads = 8,
                   .num_key_value_heads = 2,
                   .head_dim = 256,
                   .max_position_embeddings = 32768,
                   .rope_theta = 1e6,
                   .sliding_window = 512,
                   .sliding_window_pattern = 5,
                   .num_kv_shared_layers = 15,
                   .laurel_rank = 64,
                   .tie_word_embeddings = true,
                   .final_soft_cap = 30.0},
  };
}

inline constexpr ArchSpec kGemma3nRows[] = {
    Gemma3n("Gemma3nForCausalLM"),
    WithGemma4Parts(Gemma3n("Gemma3nForConditionalGeneration")),
};

}  // namespace mlc_native
