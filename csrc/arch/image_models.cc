#include "arch/image_models.h"

#include <algorithm>

namespace mlc_native {
namespace {

constexpr ImageModel kImageModels[] = {
    {"AyaVisionForConditionalGeneration", "cohere2"},
    {"Cohere2VisionForConditionalGeneration", "cohere2"},
    {"DeepseekVLForConditionalGeneration", "llama"},
    {"DeepseekVLHybridForConditionalGeneration", "llama"},
    {"Exaone4_5_ForConditionalGeneration", "exaone4"},
    {"FastVlmForConditionalGeneration", "qwen2"},
    {"GotOcr2ForConditionalGeneration", "qwen2"},
    {"HyperCLOVAXVisionV2ForConditionalGeneration", "hyperclovax", true},
    {"Idefics2ForConditionalGeneration", "mistral"},
    {"Idefics3ForConditionalGeneration", "llama"},
    {"InternVLForConditionalGeneration", "qwen2"},
    {"JanusForConditionalGeneration", "llama"},
    {"KimiK25ForConditionalGeneration", "deepseek_v3"},  // as the hub writes it
    {"Kimi_K25ForConditionalGeneration", "deepseek_v3"},
    {"Lfm2VlForConditionalGeneration", "lfm2"},
    {"Lfm3VlForConditionalGeneration", "lfm3"},
    {"LightOnOcrForConditionalGeneration", "qwen3"},
    {"LlavaForConditionalGeneration", "llama"},
    {"LlavaNextForConditionalGeneration", "llama"},
    {"LlavaNextVideoForConditionalGeneration", "llama"},
    {"LlavaOnevisionForConditionalGeneration", "qwen2"},
    {"MiniCPMOcrForConditionalGeneration", "qwen3_5_text"},
    {"MiniCPMV4_6ForConditionalGeneration", "qwen3_5_text"},
    {"MiniCPMV4_7ForConditionalGeneration", "qwen3_5_text"},
    {"Ovis2ForConditionalGeneration", "qwen2"},
    {"PerceptionLMForConditionalGeneration", "llama"},
    {"QianfanOCRForConditionalGeneration", "qwen3"},
    {"SmolVLMForConditionalGeneration", "llama"},
    {"VideoLlama3ForConditionalGeneration", "qwen2"},
    {"VideoLlavaForConditionalGeneration", "llama"},
    {"VipLlavaForConditionalGeneration", "llama"},
};

// Names with and without the module that holds all parts.
constexpr std::string_view kPartsForImages[] = {
    "vision_tower.",
    "multi_modal_projector.",
    "image_newline",
    "mm_projector.",
    "model.vision_tower.",
    "model.vision_model.",
    "model.multi_modal_projector.",
    "model.projector.",
    "model.aligner.",
    "model.connector.",
    "model.image_newline",
    "model.vision_encoder.",
    "model.vision_projection.",
    "model.visual.",
    "model.mm_projector.",
    "model.visual_embeddings_table.",
    "model.merger.",
    "model.vqmodel.",
    "model.generation_",
    "image_tower.",
    "video_tower.",
    "model.image_tower.",
    "model.video_tower.",
    "model.high_res_vision_",
};

// Mistral's layer_types count only where it is a model of its own.
constexpr std::string_view kMistralAsText = "Mistral3ForConditionalGeneration";

constexpr TextFamily kTextFamilies[] = {
    {"apertus", "ApertusForCausalLM", {131072, 4096, 14336, 32, 32}},
    {"cohere", "CohereForCausalLM", {256000, 8192, 22528, 40, 64}},
    {"cohere2", "Cohere2ForCausalLM", {256000, 8192, 22528, 40, 64}},
    {"deepseek_v2", "DeepseekV2ForCausalLM", {102400, 4096, 11008, 32, 32}},
    {"deepseek_v3", "DeepseekV3ForCausalLM", {129280, 7168, 18432, 61, 128}},
    {"kimi_k2", "DeepseekV3ForCausalLM", {129280, 7168, 18432, 61, 128}},
    {"ernie4_5", "Ernie4_5ForCausalLM", {103424, 1024, 3072, 18, 16}},
    {"exaone4", "Exaone4ForCausalLM", {102400, 4096, 16384, 32, 32}},
    {"exaone4_5_text", "Exaone4ForCausalLM", {102400, 4096, 16384, 32, 32}},
    {"gemma", "GemmaForCausalLM", {256000, 3072, 24576, 28, 16}},
    {"gemma2", "Gemma2ForCausalLM", {256000, 2304, 9216, 26, 8}},
    {"gemma3_text", "Gemma3ForCausalLM", {262208, 2304, 9216, 26, 8}},
    {"glm", "GlmForCausalLM", {151552, 4096, 13696, 40, 32}},
    {"glm4", "Glm4ForCausalLM", {151552, 4096, 13696, 40, 32}},
    {"gpt_oss", "GptOssForCausalLM", {201088, 2880, 2880, 36, 64}},
    {"granite", "GraniteForCausalLM", {32000, 4096, 11008, 32, 32}},
    {"hyperclovax", "HyperCLOVAXForCausalLM", {32000, 4096, 11008, 32, 32}},
    {"lfm2", "Lfm2ForCausalLM", {65536, 2560, 12288, 32, 32}},
    {"lfm3", "Lfm3ForCausalLM", {128000, 2048, 7680, 24, 16}},
    {"llama", "LlamaForCausalLM", {32000, 4096, 11008, 32, 32}},
    {"ministral", "MinistralForCausalLM", {32000, 4096, 14336, 32, 32}},
    {"ministral3", kMistralAsText, {131072, 4096, 14336, 34, 32}},
    {"mistral", kMistralAsText, {32000, 4096, 14336, 32, 32}},
    {"mistral4", kMistralAsText, {131072, 4096, 12288, 36, 32}},
    {"olmo2", "Olmo2ForCausalLM", {50304, 4096, 11008, 32, 32}},
    {"phi", "PhiForCausalLM", {51200, 2048, 8192, 24, 32}},
    {"phi3", "Phi3ForCausalLM", {32064, 3072, 8192, 32, 32}},
    {"qwen2", "Qwen2ForCausalLM", {151936, 4096, 22016, 32, 32}},
    {"qwen2_moe", "Qwen2MoeForCausalLM", {151936, 2048, 5632, 24, 16}},
    {"qwen3", "Qwen3ForCausalLM", {151936, 4096, 22016, 32, 32}},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", {248320, 4096, 12288, 32, 16}},
    {"qwen3_moe", "Qwen3MoeForCausalLM", {151936, 2048, 6144, 24, 32}},
    {"seed_oss", "SeedOssForCausalLM", {155136, 4096, 27648, 64, 80}},
    {"smollm3", "SmolLM3ForCausalLM", {128256, 2048, 11008, 36, 16}},
    {"stablelm", "StableLmForCausalLM", {50304, 2560, 6912, 32, 32}},
    {"starcoder2", "Starcoder2ForCausalLM", {49152, 3072, 12288, 30, 24}},
};

}  // namespace

std::span<const ImageModel> ImageModels() { return kImageModels; }

const ImageModel* FindImageModel(std::string_view architecture) {
  const auto* const found =
      std::ranges::find(kImageModels, architecture, &ImageModel::architecture);
  return found == std::end(kImageModels) ? nullptr : found;
}

std::span<const std::string_view> PartsForImages() { return kPartsForImages; }

const TextFamily* FindTextFamily(std::string_view model_type) {
  const auto* const found = std::ranges::find(kTextFamilies, model_type, &TextFamily::model_type);
  return found == std::end(kTextFamilies) ? nullptr : found;
}

std::string TextFamilyList() {
  std::string list;
  for (const TextFamily& family : kTextFamilies) {
    if (!list.empty()) list += ", ";
    list += family.model_type;
  }
  return list;
}

}  // namespace mlc_native
