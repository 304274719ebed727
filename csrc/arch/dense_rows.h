// Rows of arch_table.cc: families that differ from Llama in more than sizes, by the kind of their
// feed-forward block and norms.
#pragma once

#include "arch/tensor_names.h"

namespace mlc_native {

// ---- Names ----

inline constexpr NormName kGlm4Norms[] = {
    {"input_layernorm", NormRole::kPreAttention},
    {"post_self_attn_layernorm", NormRole::kPostAttention},
    {"post_attention_layernorm", NormRole::kPreFfn},
    {"post_mlp_layernorm", NormRole::kPostFfn},
};
inline constexpr NormName kHunYuanQkNorms[] = {
    {"self_attn.query_layernorm", NormRole::kQ},
    {"self_attn.key_layernorm", NormRole::kK},
};
inline constexpr NormName kApertusBlockNorms[] = {
    {"attention_layernorm", NormRole::kPreAttention},
    {"feedforward_layernorm", NormRole::kPreFfn},
};
inline constexpr NormName kStableLmQkNorms[] = {
    {"self_attn.q_layernorm.norms.#", NormRole::kQ},
    {"self_attn.k_layernorm.norms.#", NormRole::kK},
};
inline constexpr NormName kFirstNorm[] = {{"input_layernorm", NormRole::kPreAttention}};
inline constexpr auto kPreNormsHunYuanQk = Join(kPreNorms, kHunYuanQkNorms);
inline constexpr auto kApertusNorms = Join(kApertusBlockNorms, kQkNorms);
inline constexpr auto kStableLmNorms = Join(kPreNorms, kStableLmQkNorms);
inline constexpr auto kFirstNormQk = Join(kFirstNorm, kQkNorms);

inline constexpr ProjectionName kStarcoderFfn[] = {
    {"mlp.c_fc", LinearRole::kGateUp, Rows::kFfn},
    {"mlp.c_proj", LinearRole::kDown, Rows::kHidden},
};
inline constexpr auto kStarcoderProjections = Join(kSeparateQkv, kOut, kStarcoderFfn);

inline constexpr VectorName kXieluVectors[] = {
    {"mlp.act_fn.alpha_p", VectorRole::kActivation},
    {"mlp.act_fn.alpha_n", VectorRole::kActivation},
};

inline constexpr std::string_view kQwenVisionParts[] = {"visual.", "model.visual."};

inline constexpr Switch kUseBiasByDefault = {.field = "use_bias", .absent = true};
inline constexpr Switch kAttentionBiasByDefault = {.field = "attention_bias", .absent = true};

inline constexpr std::string_view kMinistralRope =
    R"({"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0,
        "original_max_position_embeddings": 16384, "beta_fast": 32.0, "beta_slow": 1.0,
        "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1})";
inline constexpr std::string_view kApertusRope =
    R"({"rope_type": "llama3", "rope_theta": 12000000.0, "factor": 8.0,
        "original_max_position_embeddings": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0})";

// ---- RMSNorm and a gate ----

constexpr ArchSpec Glm(std::string_view architecture, std::span<const NormName> norms) {
  return {
      .architecture = architecture,
      .projections = kSeparateQkvFusedFfn,
      .norms = norms,
      .qkv_bias = kAttentionBiasByDefault,
      .reads_partial_rotary_factor = true,
      .interleaved_rope = true,
      .defaults = {.num_attention_heads = 32,
                   .num_key_value_heads = 2,
                   .head_dim = 128,
                   .max_position_embeddings = 131072,
                   .norm_eps = 1.5625e-7,
                   .partial_rotary_factor = 0.5},
  };
}

constexpr ArchSpec Mistral(std::string_view architecture, WindowRule window_rule) {
  return {
      .architecture = architecture,
      .projections = kSeparateProjections,
      .norms = kPreNorms,
      .window_rule = window_rule,
      .defaults = {.num_key_value_heads = 8,
                   .max_position_embeddings = 131072,
                   .sliding_window = 4096},
  };
}

constexpr ArchSpec Ministral3(std::string_view architecture) {
  return {
      .architecture = architecture,
      .projections = kSeparateProjections,
      .norms = kPreNorms,
      .query_scaling = QueryScalingRule::kRopeSays,
      .window_rule = WindowRule::kAllLayers,
      .defaults = {.num_key_value_heads = 8,
                   .head_dim = 128,
                   .max_position_embeddings = 262144,
                   .norm_eps = 1e-5,
                   .rope_parameters = kMinistralRope},
  };
}

// `text`: of the model in its text_config.
constexpr ArchSpec Mistral3WithVision(ArchSpec text) {
  text.config_section = "text_config";
  text.ignored_prefixes = kVisionParts;
  text.defaults.tie_word_embeddings = true;
  return text;
}

constexpr ArchSpec Qwen2Vl(std::string_view architecture) {
  return {
      .architecture = architecture,
      .config_section = "text_config",
      .projections = kSeparateProjections,
      .norms = kPreNorms,
      .ignored_prefixes = kQwenVisionParts,
      .qkv_bias = kAlways,
      .reads_mrope = true,
      .window_rule = WindowRule::kFromLayer,
      .defaults = {.num_key_value_heads = 8,
                   .max_position_embeddings = 32768,
                   .norm_eps = 1e-5,
                   .rope_theta = 1e6,
                   .sliding_window = 4096,
                   .max_window_layers = 80},
  };
}

constexpr std::string_view kMistral3 = "Mistral3ForConditionalGeneration";

constexpr ArchSpec Ministral3WithVision() {
  ArchSpec spec = Mistral3WithVision(Ministral3(kMistral3));
  spec.text_model_type = "ministral3";
  return spec;
}

inline constexpr ArchSpec kGatedRows[] = {
    Glm("GlmForCausalLM", kPreNorms),
    Glm("Glm4ForCausalLM", kGlm4Norms),
    Ministral3("Ministral3ForCausalLM"),
    Mistral3WithVision(Mistral(kMistral3, WindowRule::kAllLayers)),
    Ministral3WithVision(),
    {.architecture = "SeedOssForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .qkv_bias = kAttentionBiasByDefault,
     .out_bias = {.field = "attention_out_bias"},
     .ffn_bias = kMlpBias,
     .defaults = {.num_key_value_heads = 8, .head_dim = 128, .max_position_embeddings = 524288}},
    {.architecture = "Exaone4ForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPostNormsQk,
     .qk_norm = QkNorm::kPerHead,
     .window_rule = WindowRule::kEveryButNthIfAny,
     .reads_window_pattern = true,
     .rope_rule = RopeRule::kInWindowsIfAny,
     .defaults = {.norm_eps = 1e-5, .sliding_window = 4096, .sliding_window_pattern = 4}},
    {.architecture = "Ernie4_5ForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .qkv_bias = kUseBias,
     .out_bias = kUseBias,
     .ffn_bias = kUseBias,
     .interleaved_rope = true,
     .defaults = {.num_key_value_heads = 2,
                  .head_dim = 128,
                  .max_position_embeddings = 131072,
                  .norm_eps = 1e-5,
                  .rope_theta = 5e5,
                  .tie_word_embeddings = true}},
    {.architecture = "HunYuanDenseV1ForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNormsHunYuanQk,
     .qk_norm = QkNorm::kPerHead,
     .rope_before_qk_norm = true,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .reads_rope_alpha = true,
     .defaults = {.norm_eps = 1e-5}},
    {.architecture = "InternLM3ForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .qkv_bias = {.field = "qkv_bias"},
     .out_bias = {.field = "bias"},
     .ffn_bias = {.field = "bias"},
     .defaults = {.num_key_value_heads = 2,
                  .head_dim = 128,
                  .max_position_embeddings = 32768,
                  .norm_eps = 1e-5}},
    Qwen2Vl("Qwen2_5_VLForConditionalGeneration"),
    {.architecture = "Qwen3VLForConditionalGeneration",
     .config_section = "text_config",
     .projections = kSeparateProjections,
     .norms = kPreNormsQk,
     .ignored_prefixes = kQwenVisionParts,
     .qk_norm = QkNorm::kPerHead,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .reads_mrope = true,
     .defaults = {.head_dim = 128, .max_position_embeddings = 128000, .rope_theta = 5e5}},
};

// ---- No gate ----

inline constexpr ArchSpec kPlainRows[] = {
    {.architecture = "ArceeForCausalLM",
     .projections = kPlainProjections,
     .norms = kPreNorms,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .ffn_bias = kMlpBias,
     .plain_ffn = true,
     .default_activation = "relu2",
     .defaults = {.max_position_embeddings = 4096, .norm_eps = 1e-5}},
    {.architecture = "NemotronForCausalLM",
     .projections = kPlainProjections,
     .norms = kPreNorms,
     .norm_kind = NormKind::kLayer,
     .norm_eps_field = "norm_eps",
     .norm_weight_offset = 1.0f,
     .norm_bias = true,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .ffn_bias = kMlpBias,
     .plain_ffn = true,
     .default_activation = "relu2",
     .reads_partial_rotary_factor = true,
     .defaults = {.max_position_embeddings = 4096, .norm_eps = 1e-5, .partial_rotary_factor = 0.5}},
    {.architecture = "Starcoder2ForCausalLM",
     .projections = kStarcoderProjections,
     .norms = kPreNorms,
     .norm_kind = NormKind::kLayer,
     .norm_eps_field = "norm_epsilon",
     .norm_bias = true,
     .qkv_bias = kUseBiasByDefault,
     .out_bias = kUseBiasByDefault,
     .ffn_bias = kUseBiasByDefault,
     .plain_ffn = true,
     .default_activation = "gelu_pytorch_tanh",
     .window_rule = WindowRule::kAllLayers,
     .defaults = {.num_key_value_heads = 2,
                  .max_position_embeddings = 4096,
                  .norm_eps = 1e-5,
                  .tie_word_embeddings = true}},
    {.architecture = "ApertusForCausalLM",
     .projections = kPlainProjections,
     .norms = kApertusNorms,
     .vectors = kXieluVectors,
     .qk_norm = QkNorm::kPerHead,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .plain_ffn = true,
     .default_activation = "xielu",
     .defaults = {.max_position_embeddings = 65536,
                  .norm_eps = 1e-5,
                  .rope_theta = 12e6,
                  .rope_parameters = kApertusRope}},
};

// ---- LayerNorm and a gate ----

constexpr ArchSpec Cohere(std::string_view architecture) {
  return {
      .architecture = architecture,
      .projections = kSeparateProjections,
      .norms = kFirstNormQk,
      .qk_norm = QkNorm::kPerHeadOwnWeight,
      .has_qk_norm = {.field = "use_qk_norm"},
      .norm_kind = NormKind::kLayer,
      .norm_eps_field = "layer_norm_eps",
      .qkv_bias = kAttentionBias,
      .out_bias = kAttentionBias,
      .parallel_blocks = kAlways,
      .multipliers = {.logits = "logit_scale"},
      .interleaved_rope = true,
      .defaults = {.max_position_embeddings = 8192,
                   .norm_eps = 1e-5,
                   .rope_theta = 5e5,
                   .tie_word_embeddings = true},
  };
}

constexpr ArchSpec Cohere2() {
  ArchSpec spec = Cohere("Cohere2ForCausalLM");
  spec.norms = kFirstNorm;
  spec.qk_norm = QkNorm::kNone;
  spec.has_qk_norm = kAlways;
  spec.window_rule = WindowRule::kEveryButNth;
  spec.reads_window_pattern = true;
  spec.rope_rule = RopeRule::kInWindows;
  spec.defaults.rope_theta = 1e4;
  spec.defaults.sliding_window = 4096;
  spec.defaults.sliding_window_pattern = 4;
  return spec;
}

inline constexpr ArchSpec kLayerNormRows[] = {
    Cohere("CohereForCausalLM"),
    Cohere2(),
    {.architecture = "StableLmForCausalLM",
     .projections = kSeparateProjections,
     .norms = kStableLmNorms,
     .qk_norm = QkNorm::kPerHeadOwnWeight,
     .has_qk_norm = {.field = "qk_layernorm"},
     .norm_kind = NormKind::kLayer,
     .norm_eps_field = "layer_norm_eps",
     .norm_bias = true,
     .qkv_bias = {.field = "use_qkv_bias"},
     .parallel_blocks = {.field = "use_parallel_residual"},
     .reads_partial_rotary_factor = true,
     .defaults = {.num_attention_heads = 32,
                  .max_position_embeddings = 4096,
                  .norm_eps = 1e-5,
                  .partial_rotary_factor = 0.25}},
};

}  // namespace mlc_native
