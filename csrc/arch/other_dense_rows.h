// Rows of arch_table.cc: dense families of which each has something of its own, and text models of
// models with images that are no other family's.
#pragma once

#include "arch/dense_rows.h"
#include "arch/expert_rows.h"
#include "arch/tensor_names.h"

namespace mlc_native {

// ---- Names ----

inline constexpr NormName kVaultGemmaNorms[] = {
    {"input_layernorm", NormRole::kPreAttention},
    {"pre_feedforward_layernorm", NormRole::kPreFfn},
};
inline constexpr NormName kHyperClovaNorms[] = {
    {"input_layernorm", NormRole::kPreAttention},
    {"post_norm1", NormRole::kPostAttention},
    {"post_attention_layernorm", NormRole::kPreFfn},
    {"post_norm2", NormRole::kPostFfn},
};
inline constexpr ProjectionName kDenseOut[] = {
    {"self_attn.dense", LinearRole::kOut, Rows::kHidden}};
inline constexpr ProjectionName kNumberedFfn[] = {
    {"mlp.fc1", LinearRole::kGateUp, Rows::kFfn},
    {"mlp.fc2", LinearRole::kDown, Rows::kHidden},
};
inline constexpr auto kPhiProjections = Join(kSeparateQkv, kDenseOut, kNumberedFfn);
inline constexpr auto kNanoChatProjections = Join(kSeparateQkv, kOut, kNumberedFfn);

inline constexpr ProjectionName kFusedGptNeoXQkv[] = {
    {"attention.query_key_value", LinearRole::kQkv, Rows::kQkvOfGroups}};
inline constexpr ProjectionName kSeparateGptNeoXQkv[] = {
    {"attention.q_proj", LinearRole::kQkv, Rows::kQ},
    {"attention.k_proj", LinearRole::kQkv, Rows::kKv},
    {"attention.v_proj", LinearRole::kQkv, Rows::kValues},
};
inline constexpr ProjectionName kBehindGptNeoXQkv[] = {
    {"attention.dense", LinearRole::kOut, Rows::kHidden},
    {"mlp.dense_h_to_4h", LinearRole::kGateUp, Rows::kFfn},
    {"mlp.dense_4h_to_h", LinearRole::kDown, Rows::kHidden},
};
inline constexpr auto kGptNeoXProjections = Join(kFusedGptNeoXQkv, kBehindGptNeoXQkv);
inline constexpr auto kSplitGptNeoXProjections = Join(kSeparateGptNeoXQkv, kBehindGptNeoXQkv);
inline constexpr std::string_view kGptNeoXPrefixes[] = {"gpt_neox.", ""};
inline constexpr std::string_view kGptNeoXHeads[] = {"embed_out.weight", "lm_head.weight"};
inline constexpr ProjectionName kInternLm2Projections[] = {
    {"attention.wqkv", LinearRole::kQkv, Rows::kQkvOfGroups},
    {"attention.wo", LinearRole::kOut, Rows::kHidden},
    {"feed_forward.w1", LinearRole::kGateUp, Rows::kFfn},
    {"feed_forward.w3", LinearRole::kGateUp, Rows::kFfn},
    {"feed_forward.w2", LinearRole::kDown, Rows::kHidden},
};
inline constexpr NormName kInternLm2Norms[] = {
    {"attention_norm", NormRole::kPreAttention},
    {"ffn_norm", NormRole::kPreFfn},
};
inline constexpr std::string_view kInternLm2Prefixes[] = {"model."};
inline constexpr std::string_view kInternLm2Heads[] = {"output.weight"};

inline constexpr std::string_view kFalseOrAbsent[] = {"false", "null"};
inline constexpr Requirement kWithoutQkLayerNorm[] = {
    {"qk_layernorm", kFalseOrAbsent, "norms of q and k with biases"},
};
inline constexpr std::string_view kDenseGlmText[] = {"glm4v_text", "null"};
inline constexpr Requirement kGlmTextIsDense[] = {
    {"model_type", kDenseGlmText, "another text model"},
};
inline constexpr std::string_view kPaddleParts[] = {"visual.", "mlp_AR.", "model.visual.",
                                                    "model.projector."};

inline constexpr Switch kMlpBiasByDefault = {.field = "mlp_bias", .absent = true};

inline constexpr std::string_view kCwmRope =
    R"({"rope_type": "llama3", "rope_theta": 1000000.0, "factor": 16.0,
        "original_max_position_embeddings": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0})";

// ---- Rows ----

constexpr ArchSpec Glm4v(std::string_view architecture) {
  return {
      .architecture = architecture,
      .config_section = "text_config",
      .projections = kSeparateQkvFusedFfn,
      .norms = kGlm4Norms,
      .ignored_prefixes = kQwenVisionParts,
      .qkv_bias = kAlways,
      .reads_partial_rotary_factor = true,
      .interleaved_rope = true,
      .reads_mrope = true,
      .defaults = {.num_attention_heads = 32,
                   .num_key_value_heads = 2,
                   .max_position_embeddings = 32768,
                   .norm_eps = 1e-5},
  };
}

// Llama with a norm of what the last linear of each block reads.
inline constexpr NormName kBitNetNorms[] = {
    {"input_layernorm", NormRole::kPreAttention},
    {"post_attention_layernorm", NormRole::kPreFfn},
    {"self_attn.attn_sub_norm", NormRole::kAttentionOut},
    {"mlp.ffn_sub_norm", NormRole::kFfnDown},
};

constexpr ArchSpec BitNet(std::string_view architecture) {
  return {.architecture = architecture,
          .projections = kSeparateProjections,
          .norms = kBitNetNorms,
          .qkv_bias = kAttentionBias,
          .out_bias = kAttentionBias,
          .default_activation = "relu2",
          .defaults = {.num_attention_heads = 20,
                       .num_key_value_heads = 5,
                       .max_position_embeddings = 2048,
                       .norm_eps = 1e-5,
                       .rope_theta = 5e5}};
}

constexpr ArchSpec Glm46v() {
  ArchSpec spec = Glm4v("Glm46VForConditionalGeneration");
  spec.requirements = kGlmTextIsDense;
  return spec;
}

constexpr ArchSpec GlmOcr() {
  ArchSpec spec = Glm4v("GlmOcrForConditionalGeneration");
  spec.qkv_bias = {};
  spec.defaults.num_attention_heads = 16;
  spec.defaults.num_key_value_heads = 8;
  spec.defaults.max_position_embeddings = 131072;
  return spec;
}

// Latent attention without experts.
constexpr ArchSpec Youtu() {
  ArchSpec spec = WithLatentAttention("YoutuForCausalLM");
  spec.experts = {};
  spec.defaults = {
      .num_attention_heads = 16, .max_position_embeddings = 131072, .tie_word_embeddings = true};
  return spec;
}

constexpr ArchSpec MiniCpm3() {
  ArchSpec spec = WithLatentAttention("MiniCPM3ForCausalLM");
  spec.ffn_bias = kMlpBias;
  spec.multipliers = {.of_minicpm = true};
  spec.interleaved_rope = false;
  spec.experts = {};
  spec.latent.absent = {
      .q_rank = 768, .kv_rank = 256, .plain_dim = 64, .rope_dim = 32, .value_dim = 0};
  spec.defaults = {.num_attention_heads = 40,
                   .max_position_embeddings = 32768,
                   .norm_eps = 1e-5,
                   .tie_word_embeddings = true};
  return spec;
}

inline constexpr ArchSpec kOtherDenseRows[] = {
    Mistral("MinistralForCausalLM", WindowRule::kAllOrByType),
    {.architecture = "HeliumForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .qkv_bias = kAttentionBias,
     .ffn_bias = kMlpBias,
     .interleaved_rope = true,
     .defaults = {.num_attention_heads = 20,
                  .num_key_value_heads = 20,
                  .head_dim = 128,
                  .max_position_embeddings = 4096,
                  .norm_eps = 1e-8,
                  .rope_theta = 1e5}},
    {.architecture = "CwmForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .ffn_bias = kMlpBias,
     .window_rule = WindowRule::kEveryButFirstOfN,
     .defaults = {.num_attention_heads = 48,
                  .num_key_value_heads = 8,
                  .head_dim = 128,
                  .max_position_embeddings = 131072,
                  .norm_eps = 1e-5,
                  .rope_theta = 1e6,
                  .rope_parameters = kCwmRope,
                  .sliding_window = 8192,
                  .sliding_window_pattern = 4}},
    {.architecture = "VaultGemmaForCausalLM",
     .projections = kSeparateProjections,
     .norms = kVaultGemmaNorms,
     .norm_weight_offset = 1.0f,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .activation_field = "hidden_activation",
     .default_activation = "gelu_pytorch_tanh",
     .multipliers = {.sqrt_hidden_size = true, .attention_divisor = "query_pre_attn_scalar"},
     .reads_attention_soft_cap = true,
     .reads_final_soft_cap = true,
     .window_rule = WindowRule::kEveryButNth,
     .defaults = {.num_attention_heads = 8,
                  .num_key_value_heads = 4,
                  .head_dim = 256,
                  .max_position_embeddings = 8192,
                  .sliding_window = 4096,
                  .sliding_window_pattern = 2,
                  .tie_word_embeddings = true,
                  .attn_soft_cap = 50.0,
                  .final_soft_cap = 30.0}},
    {.architecture = "HyperCLOVAXForCausalLM",
     .projections = kSeparateProjections,
     .norms = kHyperClovaNorms,
     .has_post_norms = {.field = "use_post_norm", .absent = true},
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .ffn_bias = kMlpBias,
     .multipliers = {.embedding = "embedding_multiplier",
                     .residual = "residual_multiplier",
                     .attention = "attention_multiplier",
                     .attention_by_head = true,
                     .logits = "logits_scaling",
                     .absent_logits = 1.0}},
    {.architecture = "GraniteSWAForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .vectors = kGptOssVectors,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .ffn_bias = kMlpBias,
     .multipliers = kGraniteMultipliers,
     .reads_layer_thetas = true,
     .window_rule = WindowRule::kEveryButFirstOfN,
     .defaults = {.num_attention_heads = 20,
                  .num_key_value_heads = 4,
                  .max_position_embeddings = 8192,
                  .norm_eps = 1e-5,
                  .sliding_window = 128,
                  .sliding_window_pattern = 4,
                  .tie_word_embeddings = true}},
    {.architecture = "Jais2ForCausalLM",
     .projections = kPlainProjections,
     .norms = kPreNorms,
     .norm_kind = NormKind::kLayer,
     .norm_eps_field = "layer_norm_eps",
     .norm_bias = true,
     .qkv_bias = kAttentionBiasByDefault,
     .out_bias = kAttentionBiasByDefault,
     .ffn_bias = kMlpBiasByDefault,
     .plain_ffn = true,
     .default_activation = "relu2",
     .defaults = {.num_attention_heads = 26, .max_position_embeddings = 8192, .norm_eps = 1e-5}},
    {.architecture = "PhiForCausalLM",
     .projections = kPhiProjections,
     .norms = kFirstNorm,
     .names = {.final_norm = "final_layernorm"},
     .requirements = kWithoutQkLayerNorm,
     .norm_kind = NormKind::kLayer,
     .norm_eps_field = "layer_norm_eps",
     .norm_bias = true,
     .qkv_bias = kAlways,
     .out_bias = kAlways,
     .ffn_bias = kAlways,
     .head_bias = kAlways,
     .plain_ffn = true,
     .parallel_blocks = kAlways,
     .default_activation = "gelu_new",
     .reads_partial_rotary_factor = true,
     .defaults = {.num_attention_heads = 32, .norm_eps = 1e-5, .partial_rotary_factor = 0.5}},
    {.architecture = "OlmoForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .norm_kind = NormKind::kLayer,
     .norm_eps_field = "",
     .norms_lack_weights = true,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .defaults = {.num_attention_heads = 32, .norm_eps = 1e-5}},
    {.architecture = "NanoChatForCausalLM",
     .projections = kNanoChatProjections,
     .norms = kPreNormsQk,
     .qk_norm = QkNorm::kPerHead,
     .rope_before_qk_norm = true,
     .norms_lack_weights = true,
     .normalizes_embeddings = true,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .plain_ffn = true,
     .default_activation = "relu2",
     .reads_final_soft_cap = true,
     .backward_rope = true,
     .defaults = {.num_attention_heads = 6, .final_soft_cap = 15.0}},
    {.architecture = "GPTNeoXForCausalLM",
     .projections = kGptNeoXProjections,
     .split_projections = kSplitGptNeoXProjections,
     .norms = kPreNorms,
     .names = {.prefixes = kGptNeoXPrefixes,
               .embeddings = "embed_in.weight",
               .final_norm = "final_layer_norm",
               .heads = kGptNeoXHeads},
     .norm_kind = NormKind::kLayer,
     .norm_eps_field = "layer_norm_eps",
     .norm_bias = true,
     .qkv_bias = kAttentionBiasByDefault,
     .out_bias = kAttentionBiasByDefault,
     .ffn_bias = kAlways,
     .plain_ffn = true,
     .parallel_blocks = {.field = "use_parallel_residual", .absent = true},
     .has_parallel_norms = true,
     .default_activation = "gelu",
     .reads_partial_rotary_factor = true,
     .rope_theta_field = "rotary_emb_base",
     .partial_rotary_field = "rotary_pct",
     .defaults = {.num_attention_heads = 64, .norm_eps = 1e-5, .partial_rotary_factor = 0.25}},
    {.architecture = "InternLM2ForCausalLM",
     .projections = kInternLm2Projections,
     .norms = kInternLm2Norms,
     .names = {.prefixes = kInternLm2Prefixes,
               .embeddings = "tok_embeddings.weight",
               .heads = kInternLm2Heads},
     .qkv_bias = {.field = "bias", .absent = true},
     .out_bias = {.field = "bias", .absent = true},
     .defaults = {.num_attention_heads = 32}},
    Youtu(),
    MiniCpm3(),
    BitNet("BitNetForCausalLM"),
    BitNet("BitnetForCausalLM"),  // as its first checkpoints say
    Qwen2Vl("Qwen2VLForConditionalGeneration"),
    Glm4v("Glm4vForConditionalGeneration"),
    Glm46v(),
    GlmOcr(),
    {.architecture = "PaddleOCRVLForConditionalGeneration",
     .config_section = "text_config",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .ignored_prefixes = kPaddleParts,
     .qkv_bias = kUseBias,
     .out_bias = kUseBias,
     .ffn_bias = kUseBias,
     .reads_mrope = true,
     .defaults = {.num_attention_heads = 16,
                  .num_key_value_heads = 2,
                  .head_dim = 128,
                  .max_position_embeddings = 131072,
                  .norm_eps = 1e-5,
                  .tie_word_embeddings = true}},
};

}  // namespace mlc_native
