#include "model_files/gguf_families.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "model_files/gguf_encoder_names.h"
#include "model_files/gguf_gpt_names.h"
#include "model_files/gguf_hybrid_names.h"
#include "support/json.h"

namespace mlc_native {
namespace {

constexpr char kArchitecture[] = "general.architecture";
constexpr char kLayerNormEps[] = "attention.layer_norm_epsilon";
constexpr char kGptLayers[] = "transformer.h.";

// ---- Names of tensors ----

constexpr GgufTensorName kOutside[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"token_embd_norm", "model.embedding_norm"},
    {"output", "lm_head"},
    {"per_layer_token_embd", "model.embed_tokens_per_layer"},
    {"per_layer_model_proj", "model.per_layer_model_projection"},
    {"per_layer_proj_norm", "model.per_layer_projection_norm"},
};
// Experts have the spelling that transformers writes for most families.
constexpr GgufTensorName kInLayers[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_sinks", "self_attn.sinks", false},
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"ffn_gate_inp", "mlp.gate"},
    {"exp_probs_b", "mlp.gate.e_score_correction_bias", false, 1},
    {"ffn_gate_exps", "mlp.experts.#.gate_proj"},
    {"ffn_up_exps", "mlp.experts.#.up_proj"},
    {"ffn_down_exps", "mlp.experts.#.down_proj"},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
};

constexpr GgufTensorName kSandwich[] = {{"ffn_norm", "pre_feedforward_layernorm"}};
constexpr GgufTensorName kGemma4[] = {
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
    {"ffn_gate_inp", "router.proj"},
    {"ffn_gate_inp.scale", "router.scale", false},
    {"ffn_down_exps.scale", "router.per_expert_scale", false},
    {"inp_gate", "per_layer_input_gate"},
    {"proj", "per_layer_projection"},
    {"post_norm", "post_per_layer_input_norm"},
    {"layer_output_scale", "layer_scalar", false},
};
constexpr GgufTensorName kGemma3n[] = {
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"inp_gate", "per_layer_input_gate"},
    {"proj", "per_layer_projection"},
    {"post_norm", "post_per_layer_input_norm"},
    {"altup_proj", "model.altup_projections.#"},
    {"altup_unembd_proj", "model.altup_unembed_projections.#"},
    {"altup_router_norm", "altup.router_norm"},
    {"altup_router", "altup.modality_router"},
    {"altup_predict_coef", "altup.prediction_coefs"},
    {"altup_correct_coef", "altup.correction_coefs"},
    {"altup_correct_scale", "altup.correct_output_scale", false},
    {"laurel_l", "laurel.linear_left"},
    {"laurel_r", "laurel.linear_right"},
    {"laurel_post_norm", "laurel.post_laurel_norm"},
};
constexpr GgufTensorName kFusedFfn[] = {{"ffn_up", "mlp.gate_up_proj"}};
constexpr GgufTensorName kPhi3[] = {
    {"attn_qkv", "self_attn.qkv_proj"},
    {"ffn_up", "mlp.gate_up_proj"},
};
constexpr GgufTensorName kGlm4[] = {
    {"ffn_up", "mlp.gate_up_proj"},
    {"post_attention_norm", "post_self_attn_layernorm"},
    {"post_ffw_norm", "post_mlp_layernorm"},
};
constexpr GgufTensorName kApertus[] = {
    {"attn_norm", "attention_layernorm"},
    {"ffn_norm", "feedforward_layernorm"},
};
constexpr GgufTensorName kStarcoder2[] = {{"ffn_up", "mlp.c_fc"}, {"ffn_down", "mlp.c_proj"}};
constexpr GgufTensorName kStableLm[] = {
    {"attn_q_norm", "self_attn.q_layernorm.norms.#"},
    {"attn_k_norm", "self_attn.k_layernorm.norms.#"},
};
constexpr GgufTensorName kQwen2Moe[] = {
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate", true, 2},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
};
constexpr GgufTensorName kHunYuan[] = {
    {"attn_q_norm", "self_attn.query_layernorm"},
    {"attn_k_norm", "self_attn.key_layernorm"},
};
constexpr GgufTensorName kHunYuanMoe[] = {
    {"attn_q_norm", "self_attn.query_layernorm"},
    {"attn_k_norm", "self_attn.key_layernorm"},
    {"ffn_gate_inp", "mlp.gate.wg"},
    {"ffn_gate_shexp", "mlp.shared_mlp.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_mlp.up_proj"},
    {"ffn_down_shexp", "mlp.shared_mlp.down_proj"},
};
constexpr GgufTensorName kAfmoe[] = {
    {"attn_gate", "self_attn.gate_proj"},         {"ffn_norm", "pre_mlp_layernorm"},
    {"post_ffw_norm", "post_mlp_layernorm"},      {"ffn_gate_inp", "mlp.router.gate"},
    {"exp_probs_b", "mlp.expert_bias", false, 1},
};
constexpr GgufTensorName kLlama4[] = {
    {"ffn_gate", "feed_forward.gate_proj"},
    {"ffn_up", "feed_forward.up_proj"},
    {"ffn_down", "feed_forward.down_proj"},
    {"ffn_gate_inp", "feed_forward.router"},
    {"ffn_gate_exps", "feed_forward.experts.#.gate_proj"},
    {"ffn_up_exps", "feed_forward.experts.#.up_proj"},
    {"ffn_down_exps", "feed_forward.experts.#.down_proj"},
    {"ffn_gate_shexp", "feed_forward.shared_expert.gate_proj"},
    {"ffn_up_shexp", "feed_forward.shared_expert.up_proj"},
    {"ffn_down_shexp", "feed_forward.shared_expert.down_proj"},
};
constexpr GgufTensorName kErnieMoe[] = {
    {"exp_probs_b", "mlp.moe_statics.e_score_correction_bias", false, 2},
};

// ---- Families ----

constexpr GgufFamily kFamilies[] = {
    {.name = "llama",
     .architecture = "LlamaForCausalLM",
     .variant_key = "expert_count",
     .variant = "MixtralForCausalLM",
     .interleaves_heads = true,
     .gating = GgufGating::kSoftmax},
    {.name = "mistral3", .architecture = "Ministral3ForCausalLM", .interleaves_heads = true},
    {.name = "qwen2", .architecture = "Qwen2ForCausalLM"},
    {.name = "qwen2moe",
     .architecture = "Qwen2MoeForCausalLM",
     .gating = GgufGating::kSoftmax,
     .names = kQwen2Moe},
    {.name = "qwen2vl", .architecture = "Qwen2_5_VLForConditionalGeneration"},
    {.name = "qwen3", .architecture = "Qwen3ForCausalLM"},
    {.name = "qwen3moe",
     .architecture = "Qwen3MoeForCausalLM",
     .gating = GgufGating::kSoftmax,
     .renormalizes = true},
    {.name = "qwen3vl", .architecture = "Qwen3VLForConditionalGeneration"},
    {.name = "qwen3vlmoe",
     .architecture = "Qwen3VLMoeForConditionalGeneration",
     .gating = GgufGating::kSoftmax},
    {.name = "qwen3next",
     .architecture = "Qwen3NextForCausalLM",
     .is_hybrid = true,
     .adds_one_to_norms = true,
     .gating = GgufGating::kSoftmax,
     .renormalizes = true,
     .names = kGgufDelta},
    {.name = "qwen35",
     .architecture = "Qwen3_5ForCausalLM",
     .is_hybrid = true,
     .tiles_value_heads = true,
     .adds_one_to_norms = true,
     .names = kGgufDelta},
    {.name = "qwen35moe",
     .architecture = "Qwen3_5MoeForCausalLM",
     .is_hybrid = true,
     .tiles_value_heads = true,
     .adds_one_to_norms = true,
     .gating = GgufGating::kSoftmax,
     .renormalizes = true,
     .names = kGgufDelta},
    {.name = "phi3", .architecture = "Phi3ForCausalLM", .names = kPhi3},
    {.name = "phimoe", .architecture = "PhimoeForCausalLM", .gating = GgufGating::kSoftmax},
    {.name = "gemma", .architecture = "GemmaForCausalLM", .adds_one_to_norms = true},
    {.name = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .adds_one_to_norms = true,
     .names = kSandwich},
    {.name = "gemma3",
     .architecture = "Gemma3ForCausalLM",
     .adds_one_to_norms = true,
     .may_lack_windows = true,
     .names = kSandwich},
    {.name = "gemma-embedding",
     .architecture = "Gemma3ForCausalLM",
     .adds_one_to_norms = true,
     .sees_both_directions = true,
     .names = kSandwich},
    {.name = "gemma3n",
     .architecture = "Gemma3nForCausalLM",
     .has_streams = true,
     .names = kGemma3n},
    {.name = "gemma4",
     .architecture = "Gemma4ForCausalLM",
     .layers_differ = true,
     .gating = GgufGating::kSoftmax,
     .renormalizes = true,
     .names = kGemma4},
    {.name = "lfm2",
     .architecture = "Lfm2ForCausalLM",
     .has_convolutions = true,
     .names = kGgufLfm2},
    {.name = "lfm2moe",
     .architecture = "Lfm2MoeForCausalLM",
     .has_convolutions = true,
     .gating = GgufGating::kSigmoid,
     .renormalizes = true,
     .names = kGgufLfm2},
    {.name = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .variant_key = "attention.sliding_window_pattern",
     .variant = "Olmo3ForCausalLM"},
    {.name = "olmoe", .architecture = "OlmoeForCausalLM", .gating = GgufGating::kSoftmax},
    {.name = "granite", .architecture = "GraniteForCausalLM", .interleaves_heads = true},
    {.name = "granitemoe",
     .architecture = "GraniteMoeForCausalLM",
     .variant_key = "expert_shared_feed_forward_length",
     .variant = "GraniteMoeSharedForCausalLM",
     .interleaves_heads = true,
     .gating = GgufGating::kSoftmax},
    {.name = "granitehybrid",
     .architecture = "BambaForCausalLM",
     .where_true = "rope.scaling.finetuned",
     .interleaves_heads = true,
     .mamba = GgufMamba::kSomeLayers,
     .names = kGgufBamba},
    {.name = "granitehybrid",
     .architecture = "GraniteMoeHybridForCausalLM",
     .interleaves_heads = true,
     .mamba = GgufMamba::kSomeLayers,
     .gating = GgufGating::kSoftmax,
     .names = kGgufMamba2},
    {.name = "falcon-h1",
     .architecture = "FalconH1ForCausalLM",
     .mamba = GgufMamba::kBesideAttention,
     .names = kGgufBamba},
    {.name = "nemotron_h",
     .architecture = "NemotronHForCausalLM",
     .interleaves_heads = true,
     .mamba = GgufMamba::kSingleBlocks,
     .lacks_ropes = true,
     .norm_eps = kLayerNormEps,
     .names = kGgufSingleBlocks},
    {.name = "nemotron_h_moe",
     .architecture = "NemotronHForCausalLM",
     .interleaves_heads = true,
     .mamba = GgufMamba::kSingleBlocks,
     .lacks_ropes = true,
     .norm_eps = kLayerNormEps,
     .gating = GgufGating::kSigmoid,
     .names = kGgufSingleBlocks},
    {.name = "mamba2",
     .architecture = "Mamba2ForCausalLM",
     .mamba = GgufMamba::kAlone,
     .lacks_ropes = true,
     .names = kGgufSingleBlocks},
    {.name = "mamba",
     .architecture = "FalconMambaForCausalLM",
     .where_true = "ssm.dt_b_c_rms",
     .mamba = GgufMamba::kScanAlone,
     .lacks_ropes = true,
     .names = kGgufMamba1},
    {.name = "mamba",
     .architecture = "MambaForCausalLM",
     .mamba = GgufMamba::kScanAlone,
     .lacks_ropes = true,
     .names = kGgufMamba1},
    {.name = "jamba",
     .architecture = "JambaForCausalLM",
     .mamba = GgufMamba::kScanInSomeLayers,
     .lacks_ropes = true,
     .gating = GgufGating::kSoftmax,
     .names = kGgufJamba},
    {.name = "smollm3", .architecture = "SmolLM3ForCausalLM", .interleaves_heads = true},
    {.name = "chatglm", .architecture = "GlmForCausalLM", .names = kFusedFfn},
    {.name = "glm4",
     .architecture = "Glm4ForCausalLM",
     .sections_reorder_heads = true,
     .names = kGlm4},
    {.name = "glm4moe", .architecture = "Glm4MoeForCausalLM", .gating = GgufGating::kSigmoid},
    {.name = "dots1",
     .architecture = "Dots1ForCausalLM",
     .may_lack_windows = true,
     .gating = GgufGating::kSigmoid},
    {.name = "exaone-moe",
     .architecture = "ExaoneMoeForCausalLM",
     .may_lack_windows = true,
     .gating = GgufGating::kSigmoid},
    {.name = "deepseek2",
     .architecture = "DeepseekV2ForCausalLM",
     .of_sigmoids = "DeepseekV3ForCausalLM",
     .of_scaled_queries = "Mistral4ForCausalLM",
     .is_latent = true,
     .gating = GgufGating::kSoftmax,
     .names = kGgufLatent},
    {.name = "glm-dsa",
     .architecture = "GlmMoeDsaForCausalLM",
     .is_latent = true,
     .chooses_keys = true,
     .gating = GgufGating::kSigmoid,
     .names = kGgufIndexed},
    {.name = "mistral4",
     .architecture = "Mistral4ForCausalLM",
     .is_latent = true,
     .gating = GgufGating::kSoftmax,
     .names = kGgufLatent},
    {.name = "kimi-linear",
     .architecture = "KimiLinearForCausalLM",
     .is_latent = true,
     .decays_channels = true,
     .lacks_ropes = true,
     .gating = GgufGating::kSigmoid,
     .renormalizes = true,
     .names = kGgufKimi},
    {.name = "llama4",
     .architecture = "Llama4ForCausalLM",
     .is_chunked = true,
     .gating = GgufGating::kSigmoid,
     .names = kLlama4},
    {.name = "afmoe",
     .architecture = "AfmoeForCausalLM",
     .gating = GgufGating::kSigmoid,
     .names = kAfmoe},
    {.name = "minimax-m2", .architecture = "MiniMaxM2ForCausalLM", .gating = GgufGating::kSigmoid},
    {.name = "gpt-oss",
     .architecture = "GptOssForCausalLM",
     .truncates_yarn = false,
     .gating = GgufGating::kSoftmaxOfChosen},
    {.name = "command-r", .architecture = "CohereForCausalLM", .norm_eps = kLayerNormEps},
    {.name = "cohere2", .architecture = "Cohere2ForCausalLM", .norm_eps = kLayerNormEps},
    {.name = "exaone4", .architecture = "Exaone4ForCausalLM", .may_lack_windows = true},
    {.name = "seed_oss", .architecture = "SeedOssForCausalLM"},
    {.name = "ernie4_5", .architecture = "Ernie4_5ForCausalLM"},
    {.name = "ernie4_5-moe",
     .architecture = "Ernie4_5_MoeForCausalLM",
     .gating = GgufGating::kSoftmax,
     .names = kErnieMoe},
    {.name = "hunyuan-dense", .architecture = "HunYuanDenseV1ForCausalLM", .names = kHunYuan},
    {.name = "hunyuan-moe",
     .architecture = "HunYuanMoEV1ForCausalLM",
     .gating = GgufGating::kSoftmax,
     .names = kHunYuanMoe},
    {.name = "stablelm",
     .architecture = "StableLmForCausalLM",
     .norm_eps = kLayerNormEps,
     .names = kStableLm},
    {.name = "starcoder2",
     .architecture = "Starcoder2ForCausalLM",
     .norm_eps = kLayerNormEps,
     .names = kStarcoder2},
    {.name = "nemotron",
     .architecture = "NemotronForCausalLM",
     .adds_one_to_norms = true,
     .norm_eps = kLayerNormEps},
    {.name = "arcee", .architecture = "ArceeForCausalLM", .interleaves_heads = true},
    {.name = "internlm2", .architecture = "LlamaForCausalLM", .interleaves_heads = true},
    {.name = "jais2", .architecture = "Jais2ForCausalLM", .norm_eps = kLayerNormEps},
    {.name = "olmo",
     .architecture = "OlmoForCausalLM",
     .interleaves_heads = true,
     .norm_eps = kLayerNormEps},
    {.name = "gpt2",
     .architecture = "GPT2LMHeadModel",
     .layers = kGptLayers,
     .splits_qkv = true,
     .lacks_ropes = true,
     .norm_eps = kLayerNormEps,
     .names = kGgufGpt},
    {.name = "starcoder",
     .architecture = "GPTBigCodeForCausalLM",
     .layers = kGptLayers,
     .splits_qkv = true,
     .lacks_ropes = true,
     .norm_eps = kLayerNormEps,
     .names = kGgufGpt},
    {.name = "gptneox",
     .architecture = "GPTNeoXForCausalLM",
     .layers = "gpt_neox.layers.",
     .splits_qkv = true,
     .norm_eps = kLayerNormEps,
     .names = kGgufGptNeoX},
    {.name = "falcon",
     .architecture = "FalconForCausalLM",
     .layers = kGptLayers,
     .splits_qkv = true,
     .norm_eps = kLayerNormEps,
     .names = kGgufFalcon},
    {.name = "apertus", .architecture = "ApertusForCausalLM", .names = kApertus},
    {.name = kGgufBertName,
     .architecture = "BertModel",
     .variant = "BertForSequenceClassification",
     .layers = "bert.encoder.layer.",
     .lacks_ropes = true,
     .is_encoder = true,
     .norm_eps = kLayerNormEps,
     .names = kGgufBert},
    {.name = kGgufModernBertName,
     .architecture = "ModernBertModel",
     .variant = "ModernBertForSequenceClassification",
     .is_encoder = true,
     .may_lack_windows = true,
     .norm_eps = kLayerNormEps,
     .names = kGgufModernBert},
    {.name = kGgufEuroBertName, .architecture = "EuroBertModel", .is_encoder = true},
    {.name = kGgufNomicBertName,
     .architecture = "NomicBertModel",
     .layers = "encoder.layers.",
     .is_encoder = true,
     .norm_eps = kLayerNormEps,
     .names = kGgufNomicBert},
};

const GgufTensorName* Find(std::span<const GgufTensorName> names, std::string_view stored) {
  const auto found = std::ranges::find(names, stored, &GgufTensorName::stored);
  return found == names.end() ? nullptr : &*found;
}

}  // namespace

const GgufFamily& FamilyOf(const GgufFile& file) {
  const std::string name = file.String(kArchitecture).value_or("");
  const auto* found = std::ranges::find_if(kFamilies, [&](const GgufFamily& family) {
    return family.name == name &&
           (family.where_true.empty() ||
            file.Bool(name + '.' + std::string(family.where_true)).value_or(false));
  });
  if (found != std::end(kFamilies)) return *found;
  std::string list;
  for (const GgufFamily& family : kFamilies) {
    if (!family.where_true.empty()) continue;  // its name follows
    list += (list.empty() ? "" : ", ") + std::string(family.name);
  }
  file.Fail(kArchitecture, "= " + JsonExcerpt(JsonValue(name)) +
                               " is not supported in a GGUF file; supported: " + list);
}

const GgufTensorName* FindGgufTensor(const GgufFamily& family, std::string_view stored) {
  const GgufTensorName* own = Find(family.names, stored);
  return own != nullptr ? own : Find(kInLayers, stored);
}

const GgufTensorName* FindGgufTensorOutside(const GgufFamily& family, std::string_view stored) {
  const GgufTensorName* own = Find(family.names, stored);
  return own != nullptr ? own : Find(kOutside, stored);
}

}  // namespace mlc_native
