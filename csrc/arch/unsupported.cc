#include "arch/unsupported.h"

#include <algorithm>

namespace mlc_native {
namespace {

constexpr UnsupportedArchitecture kTable[] = {
    {"MiniMaxForCausalLM", "layers with linear attention (lightning attention)"},
    {"MiniMaxText01ForCausalLM", "layers with linear attention (lightning attention)"},
    {"BailingHybridForCausalLM", "layers with linear attention (lightning attention)"},
    {"ZambaForCausalLM", "state-space layers (Mamba)"},
    {"Zamba2ForCausalLM", "state-space layers (Mamba)"},
    {"RecurrentGemmaForCausalLM", "recurrent layers"},
    {"RwkvForCausalLM", "recurrent layers"},
    {"xLSTMForCausalLM", "recurrent layers"},
    {"LongcatFlashForCausalLM", "two blocks of latent attention in a layer"},
    {"Gemma4AssistantForCausalLM", "the keys and values of the model that it drafts for"},
    {"Gemma4UnifiedAssistantForCausalLM", "the keys and values of the model that it drafts for"},
    {"Ernie4_5_VLMoeForConditionalGeneration", "experts of texts beside those of images"},
    {"Ernie4_5_VL_MoeForConditionalGeneration", "experts of texts beside those of images"},
    {"JetMoeForCausalLM", "attention with experts"},
    {"AXK2ForCausalLM", "norms with gates"},
    {"MllamaForConditionalGeneration", "cross-attention to images"},
    {"MllamaForCausalLM", "cross-attention to images"},
    {"T5ForConditionalGeneration", "an encoder"},
    {"T5GemmaForConditionalGeneration", "an encoder"},
    {"BartForConditionalGeneration", "an encoder"},
    {"WhisperForConditionalGeneration", "an encoder"},
    {"BaichuanForCausalLM", "a layout of its own"},
    {"PersimmonForCausalLM", "norms of q and k with biases"},
    {"DiffLlamaForCausalLM", "the difference of two attentions"},
    {"DogeForCausalLM", "attention masks that are computed from values"},
    {"PaliGemmaForConditionalGeneration", "attention in both directions over prompts"},
    {"ChatGLMModel", "a layout of its own; the folder for transformers (\"...-hf\") runs"},
    {"ChatGLMForConditionalGeneration",
     "a layout of its own; the folder for transformers (\"...-hf\") runs"},
    {"QWenLMHeadModel", "a layout of its own; Qwen2 and later run"},
};

}  // namespace

std::span<const UnsupportedArchitecture> UnsupportedArchitectures() { return kTable; }

std::string_view WhatItLacks(std::string_view architecture) {
  const auto* const found =
      std::ranges::find(kTable, architecture, &UnsupportedArchitecture::architecture);
  return found == std::end(kTable) ? std::string_view() : found->lacks;
}

}  // namespace mlc_native
