#include "arch/draft_layout.h"

#include <algorithm>

namespace mlc_native {
namespace {

constexpr DraftLayout kLayouts[] = {
    // SafeAILab, SpecForge, AngelSlim
    {.name = "EAGLE-3 (midlayer)",
     .mode = SpeculativeMode::kEagle3,
     .fuse = "fc",
     .embedding_norm = "midlayer.input_layernorm",
     .state_norm = "midlayer.hidden_norm",
     .layer = "midlayer.",
     .final_norm = "norm",
     .joins_in_attention = true},
    // speculators, AngelSlim
    {.name = "EAGLE-3 (layers.0)",
     .mode = SpeculativeMode::kEagle3,
     .fuse = "fc",
     .embedding_norm = "layers.0.input_layernorm",
     .state_norm = "layers.0.hidden_norm",
     .layer = "layers.0.",
     .final_norm = "norm",
     .joins_in_attention = true},
    // SafeAILab
    {.name = "EAGLE-1", .mode = SpeculativeMode::kEagle, .fuse = "fc", .layer = "layers.0."},
    {.name = "MTP of MiMo",
     .mode = SpeculativeMode::kMtp,
     .fuse = "model.mtp_layers.0.input_proj",
     .embedding_norm = "model.mtp_layers.0.token_layernorm",
     .state_norm = "model.mtp_layers.0.hidden_layernorm",
     .layer = "model.mtp_layers.0.",
     .final_norm = "model.mtp_layers.0.final_layernorm",
     .in_target = "model.mtp_layers.",
     .has_attention_norm = true,
     .states_first = true,
     .feeds_back_norm = true},
    // Also GLM-4 MoE
    {.name = "MTP of DeepSeek",
     .mode = SpeculativeMode::kMtp,
     .fuse = "model.layers.#.eh_proj",
     .embedding_norm = "model.layers.#.enorm",
     .state_norm = "model.layers.#.hnorm",
     .layer = "model.layers.#.",
     .final_norm = "model.layers.#.shared_head.norm",
     .in_target = "model.layers.#.",
     .has_attention_norm = true,
     .feeds_back_norm = true},
    {.name = "MTP of Qwen3-Next",
     .mode = SpeculativeMode::kMtp,
     .fuse = "mtp.fc",
     .embedding_norm = "mtp.pre_fc_norm_embedding",
     .state_norm = "mtp.pre_fc_norm_hidden",
     .layer = "mtp.layers.0.",
     .final_norm = "mtp.norm",
     .in_target = "mtp.",
     .has_attention_norm = true,
     .feeds_back_norm = true},
    // FasterDecoding, without and with the name of the module
    {.name = "Medusa",
     .mode = SpeculativeMode::kMedusa,
     .medusa_block = "#.#.linear",
     .medusa_head = "#.#"},
    {.name = "Medusa (medusa_head)",
     .mode = SpeculativeMode::kMedusa,
     .medusa_block = "medusa_head.#.#.linear",
     .medusa_head = "medusa_head.#.#"},
    {.name = "Medusa of vLLM",
     .mode = SpeculativeMode::kMedusa,
     .medusa_block = "blocks.#.layers.#",
     .medusa_head = "lm_heads.#"},
};

}  // namespace

std::string NumberedName(std::string_view name, std::initializer_list<int64_t> numbers) {
  std::string out;
  const int64_t* number = numbers.begin();
  for (const char c : name) {
    if (c == '#') {
      out += std::to_string(*number++);
    } else {
      out += c;
    }
  }
  return out;
}

std::span<const DraftLayout> DraftLayouts() { return kLayouts; }

std::string DraftLayoutList() {
  std::string list;
  for (const DraftLayout& layout : kLayouts) {
    if (!list.empty()) list += ", ";
    list += layout.name;
  }
  return list;
}

bool DescribesDraftHead(const ConfigFields& root) {
  for (const char* field : {"speculators_model_type", "draft_vocab_size", "eagle_config",
                            kDraftStreamIds, "medusa_num_heads"}) {
    if (root.Has(field)) return true;
  }
  if (root.String("model_type", "") == "medusa") return true;
  return std::ranges::any_of(root.Strings("architectures"), [](const std::string& name) {
    return name.find("Eagle") != std::string::npos || name.find("Medusa") != std::string::npos;
  });
}

}  // namespace mlc_native
