// The families that tests of CudaModel run: architectures, with fields of a config.json.
#pragma once

#include <utility>
#include <vector>

#include "cuda/model_driver.h"

namespace mlc_native {

// The kinds of families are decoder_test.cc's; these differ in how they are loaded.
inline constexpr std::pair<const char*, const char*> kLoadedFamilies[] = {
    {"LlamaForCausalLM", ""},
    {"Qwen2ForCausalLM", ""},
    {"Phi3ForCausalLM", ""},
    {"GraniteForCausalLM", R"("residual_multiplier": 0.4, "logits_scaling": 3)"},
    // What a family has between its linears.
    {"Glm4ForCausalLM", R"("head_dim": 16)"},
    {"NemotronForCausalLM", R"("head_dim": 16)"},
    {"Starcoder2ForCausalLM", R"("sliding_window": 9)"},
    {"CohereForCausalLM", R"("use_qk_norm": true)"},
    {"Cohere2ForCausalLM", R"("sliding_window": 9, "sliding_window_pattern": 2)"},
    {"StableLmForCausalLM", R"("qk_layernorm": true, "use_parallel_residual": true)"},
    {"HunYuanDenseV1ForCausalLM", ""},
    {"ApertusForCausalLM", ""},
    {"HyperCLOVAXForCausalLM", R"("residual_multiplier": 0.4, "rms_norm_eps": 0.01)"},
    {"GPTNeoXForCausalLM", R"("num_key_value_heads": 4, "rotary_pct": 1)"},
    {"OlmoForCausalLM", ""},
    {"GPT2LMHeadModel", ""},
    {"GPTBigCodeForCausalLM", ""},
    {"GPTNeoForCausalLM", R"("window_size": 9)"},
    {"OPTForCausalLM", ""},
    {"FalconForCausalLM", R"("bias": true)"},
    {"FalconForCausalLM", R"("new_decoder_architecture": true)"},
    {"GPTJForCausalLM", R"("rotary_dim": 4)"},
    {"CodeGenForCausalLM", R"("rotary_dim": 6)"},
    {"BloomForCausalLM", ""},
    {"MptForCausalLM", ""},
    {"BitNetForCausalLM", ""},
    {"Mamba2ForCausalLM", ""},
    {"MambaForCausalLM", R"("use_bias": true)"},
    {"FalconMambaForCausalLM", R"("use_conv_bias": false, "conv_kernel": 3)"},
    {"JambaForCausalLM", kJamba},
    {"Qwen3_5ForCausalLM", kDelta},
    {"KimiLinearForCausalLM", kKimi},
    {"OlmoHybridForCausalLM", kOlmoHybrid},
    {"Lfm2ForCausalLM", kConvolution},
    {"Lfm2MoeForCausalLM", kConvolutionExperts},
    {"BambaForCausalLM", kMamba},
    {"GraniteMoeHybridForCausalLM", kMambaExperts},
    {"NemotronHForCausalLM", kSingleBlocks},
    {"NemotronHForCausalLM", kSingleBlockExperts},
    {"NemotronHForCausalLM", kSingleBlocksWithoutStates},
    {"FalconH1ForCausalLM", kBesideMamba},
    {"FalconH1ForCausalLM", kBesideMambaWithNorm},
    {"Gemma3nForCausalLM", kStreams},
    {"Gemma4ForCausalLM", kGemma4Dense},
    {"Gemma4ForCausalLM", kGemma4Inputs},
    {"Gemma4ForCausalLM", kGemma4Experts},
    {"LagunaForCausalLM", kHeadsOfLayers},
    {"LagunaForCausalLM", kHeadsOfLayersWithBiases},
    {"Cohere2MoeForCausalLM", kParallelExperts},
    {"MiMoV2FlashForCausalLM", kShortValues},
    {"Qwen3NextForCausalLM", kDelta},
    {"Qwen3_5MoeForCausalLM",
     R"("head_dim": 16, "num_experts": 6, "num_experts_per_tok": 2, "num_hidden_layers": 3)"},
    {"NanoChatForCausalLM", R"("head_dim": 16)"},
    {"GraniteSWAForCausalLM", R"("sliding_window": 9, "layer_rope_theta": [0, 1000])"},
    {"MiniCPM3ForCausalLM", R"("num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 16,
        "qk_nope_head_dim": 8, "qk_rope_head_dim": 8)"},
    {"Ministral3ForCausalLM", R"("head_dim": 16, "rope_parameters": {
        "llama_4_scaling_beta": 0.5, "original_max_position_embeddings": 8})"}};

using Families = std::vector<std::pair<const char*, const char*>>;

// `more`, and families whose layers differ in what they are made of.
inline Families WithKindsOfLayers(Families more) {
  for (const auto& family : Families{{"Qwen3_5ForCausalLM", kDelta},
                                     {"KimiLinearForCausalLM", kKimi},
                                     {"OlmoHybridForCausalLM", kOlmoHybrid},
                                     {"Lfm2ForCausalLM", kConvolution},
                                     {"BambaForCausalLM", kMamba},
                                     {"JambaForCausalLM", kJamba},
                                     {"NemotronHForCausalLM", kSingleBlocks},
                                     {"NemotronHForCausalLM", kSingleBlockExperts},
                                     {"FalconH1ForCausalLM", kBesideMamba},
                                     {"Gemma3nForCausalLM", kStreams},
                                     {"Gemma4ForCausalLM", kGemma4Dense},
                                     {"Gemma4ForCausalLM", kGemma4Inputs},
                                     {"Gemma4ForCausalLM", kGemma4Experts},
                                     {"LagunaForCausalLM", kHeadsOfLayers},
                                     {"Cohere2MoeForCausalLM", kParallelExperts},
                                     {"MiMoV2FlashForCausalLM", kShortValues},
                                     {"DeepseekV3ForCausalLM", kLatent},
                                     {"GlmMoeDsaForCausalLM", kKeyChoice}}) {
    more.push_back(family);
  }
  return more;
}

}  // namespace mlc_native
