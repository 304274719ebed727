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
     .has_attention_norm = true,
     .states_first = true,
     .feeds_back_norm = true,
     .in_target_folder = true},
};

}  // namespace

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
  return std::ranges::any_of(root.Strings("architectures"), [](const std::string& name) {
    return name.find("Eagle") != std::string::npos || name.find("Medusa") != std::string::npos;
  });
}

}  // namespace mlc_native
