// The table of families (arch_spec.h), and how they are found.
#include <algorithm>
#include <string>
#include <string_view>

#include "arch/afmoe_rows.h"
#include "arch/arch_spec.h"
#include "arch/convolution_rows.h"
#include "arch/deepseek_v4_rows.h"
#include "arch/dense_rows.h"
#include "arch/encoder_rows.h"
#include "arch/expert_rows.h"
#include "arch/gemma3n_rows.h"
#include "arch/gemma4_rows.h"
#include "arch/gpt_rows.h"
#include "arch/hybrid_rows.h"
#include "arch/image_models.h"
#include "arch/kimi_rows.h"
#include "arch/laguna_rows.h"
#include "arch/llama4_rows.h"
#include "arch/mamba_rows.h"
#include "arch/omni_rows.h"
#include "arch/other_dense_rows.h"
#include "arch/other_expert_rows.h"
#include "arch/scan_rows.h"
#include "arch/tensor_names.h"
#include "arch/window_expert_rows.h"

namespace mlc_native {
namespace {

constexpr Multipliers kGemmaMultipliers = {.sqrt_hidden_size = true};
constexpr Multipliers kGemma2Multipliers = {.sqrt_hidden_size = true,
                                            .attention_divisor = "query_pre_attn_scalar"};

constexpr ArchSpec Gemma3(std::string_view architecture) {
  return {
      .architecture = architecture,
      .projections = kSeparateProjections,
      .norms = kSandwichNormsQk,
      .qk_norm = QkNorm::kPerHead,
      .norm_weight_offset = 1.0f,
      .qkv_bias = kAttentionBias,
      .out_bias = kAttentionBias,
      .activation_field = "hidden_activation",
      .default_activation = "gelu_pytorch_tanh",
      .multipliers = kGemma2Multipliers,
      .reads_final_soft_cap = true,
      .reads_bidirectional = true,
      .window_rule = WindowRule::kEveryButNth,
      .window_pattern_field = "sliding_window_pattern",
      .local_rope = true,
      .local_rope_theta_field = "rope_local_base_freq",
      .defaults = {.vocab_size = 262208,
                   .num_attention_heads = 8,
                   .num_key_value_heads = 4,
                   .head_dim = 256,
                   .max_position_embeddings = 131072,
                   .rope_theta = 1e6,
                   .sliding_window = 4096,
                   .sliding_window_pattern = 6,
                   .tie_word_embeddings = true},
  };
}

constexpr ArchSpec Gemma3WithVision() {
  ArchSpec spec = Gemma3("Gemma3ForConditionalGeneration");
  spec.reads_final_soft_cap = false;
  spec.config_section = "text_config";
  spec.ignored_prefixes = kVisionParts;
  spec.rows_see_each_other = true;
  return spec;
}

constexpr ArchSpec kFirstRows[] = {
    {.architecture = "LlamaForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .ffn_bias = kMlpBias},
    // With layer_types, transformers takes it for a Ministral.
    Mistral("MistralForCausalLM", WindowRule::kAllOrByType),
    {.architecture = "Qwen2ForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .qkv_bias = kAlways,
     .window_rule = WindowRule::kFromLayer,
     .defaults = {.max_position_embeddings = 32768, .sliding_window = 4096}},
    {.architecture = "MiMoForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .qkv_bias = kAlways,
     .window_rule = WindowRule::kFromLayer,
     .defaults = {.max_position_embeddings = 32768, .sliding_window = 4096}},
    {.architecture = "Qwen3ForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNormsQk,
     .qk_norm = QkNorm::kPerHead,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .window_rule = WindowRule::kFromLayer,
     .defaults = {.head_dim = 128, .max_position_embeddings = 32768, .sliding_window = 4096}},
    {.architecture = "Phi3ForCausalLM",
     .projections = kFusedProjections,
     .norms = kPreNorms,
     .reads_partial_rotary_factor = true,
     .yarn_is_longrope = true,
     .window_rule = WindowRule::kAllLayers,
     .defaults = {.max_position_embeddings = 4096,
                  .norm_eps = 1e-5,
                  .original_max_position_embeddings = 4096}},
    {.architecture = "GemmaForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .norm_weight_offset = 1.0f,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .default_activation = "gelu_pytorch_tanh",
     .gelu_is_tanh = true,
     .multipliers = kGemmaMultipliers,
     .defaults = {.head_dim = 256, .max_position_embeddings = 8192, .tie_word_embeddings = true}},
    {.architecture = "Gemma2ForCausalLM",
     .projections = kSeparateProjections,
     .norms = kSandwichNorms,
     .norm_weight_offset = 1.0f,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .activation_field = "hidden_activation",
     .default_activation = "gelu_pytorch_tanh",
     .multipliers = kGemma2Multipliers,
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
    Gemma3("Gemma3ForCausalLM"),
    Gemma3WithVision(),
    {.architecture = "Olmo2ForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPostNormsQk,
     .qk_norm = QkNorm::kWholeProjection,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .defaults = {.norm_eps = 1e-5}},
    {.architecture = "Olmo3ForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPostNormsQk,
     .qk_norm = QkNorm::kWholeProjection,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .window_rule = WindowRule::kEveryButNth,
     .local_rope = true,
     .defaults = {.norm_eps = 1e-5,
                  .rope_theta = 5e5,
                  .local_rope_theta = 5e5,
                  .sliding_window = 4096,
                  .sliding_window_pattern = 4}},
    {.architecture = "GraniteForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .ffn_bias = kMlpBias,
     .multipliers = kGraniteMultipliers},
    {.architecture = "SmolLM3ForCausalLM",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .ffn_bias = kMlpBias,
     .window_rule = WindowRule::kWithoutRope,
     .rope_rule = RopeRule::kFieldSays,
     .defaults = {.vocab_size = 128256,
                  .num_attention_heads = 16,
                  .num_key_value_heads = 4,
                  .max_position_embeddings = 32768,
                  .rope_theta = 2e6,
                  .tie_word_embeddings = true}},
};

constexpr auto kArchitectures =
    Join(kFirstRows, kGemma3nRows, kGemma4Rows, kGatedRows, kPlainRows, kLayerNormRows,
         kOtherDenseRows, kGptRows, kExpertRows, kOtherExpertRows, kWindowExpertRows, kOmniRows,
         kLlama4Rows, kAfmoeRows, kHybridRows, kConvolutionRows, kMambaRows, kScanRows, kKimiRows,
         kLagunaRows, kDeepSeekV4Rows, kEncoderRows);

constexpr MlcFamily kMlcFamilies[] = {
    {"llama", "LlamaForCausalLM", kFusedProjections},
    {"mistral", "MistralForCausalLM", kFusedProjections},
    {"qwen2", "Qwen2ForCausalLM", kMlcQwen},
    {"qwen3", "Qwen3ForCausalLM", kMlcQwen},
    {"gemma", "GemmaForCausalLM", kFusedProjections},
    {"gemma2", "Gemma2ForCausalLM", kFusedProjections},
    {"gemma3", "Gemma3ForCausalLM", kSeparateQkvFusedFfn},
    {"gemma3_text", "Gemma3ForCausalLM", kSeparateQkvFusedFfn},
};

// The row of a family that has a head, by the family's part of the name.
const ArchSpec* FindWithHead(const std::string& family) {
  for (const char* const head : {"ForCausalLM", "LMHeadModel", "ForMaskedLM"}) {
    if (const ArchSpec* const arch = FindArchitecture(family + head)) return arch;
  }
  return nullptr;
}

}  // namespace

const MlcFamily* FindMlcFamily(std::string_view model_type) {
  const auto* it = std::find_if(std::begin(kMlcFamilies), std::end(kMlcFamilies),
                                [&](const MlcFamily& f) { return f.model_type == model_type; });
  return it == std::end(kMlcFamilies) ? nullptr : it;
}

std::string MlcModelTypeList() {
  std::string list;
  for (const MlcFamily& family : kMlcFamilies) {
    if (!list.empty()) list += ", ";
    list += family.model_type;
  }
  return list;
}

std::span<const ArchSpec> SupportedArchitectures() { return kArchitectures; }

const ArchSpec* FindArchitecture(std::string_view architecture) {
  const auto* it =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                   [&](const ArchSpec& spec) { return spec.architecture == architecture; });
  return it == std::end(kArchitectures) ? nullptr : it;
}

const ArchSpec* FindDecoder(std::string_view name) {
  for (const std::string_view ending : {"TextModel", "Model"}) {
    if (!name.ends_with(ending)) continue;
    const std::string family(name.substr(0, name.size() - ending.size()));
    if (const ArchSpec* const arch = FindWithHead(family)) return arch;
  }
  return nullptr;
}

const ArchSpec* FindClassifier(std::string_view name, bool has_sections) {
  for (const std::string_view ending :
       {"TextForSequenceClassification", "ForSequenceClassification"}) {
    if (!name.ends_with(ending)) continue;
    const std::string family(name.substr(0, name.size() - ending.size()));
    const ArchSpec* const whole =
        has_sections ? FindArchitecture(family + "ForConditionalGeneration") : nullptr;
    if (whole != nullptr) return whole;
    if (const ArchSpec* const arch = FindWithHead(family)) return arch;
  }
  return nullptr;
}

const ArchSpec* RowOfText(const ArchSpec* row, std::string_view model_type) {
  const auto* it =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures), [&](const ArchSpec& spec) {
        return spec.architecture == row->architecture && !spec.text_model_type.empty() &&
               spec.text_model_type == model_type;
      });
  return it == std::end(kArchitectures) ? row : it;
}

std::string SupportedArchitectureList() {
  std::string list;
  for (const ArchSpec& spec : kArchitectures) {
    if (!spec.text_model_type.empty()) continue;
    if (!list.empty()) list += ", ";
    list += spec.architecture;
  }
  for (const ImageModel& model : ImageModels()) {
    list += ", ";
    list += model.architecture;
  }
  return list;
}

}  // namespace mlc_native
