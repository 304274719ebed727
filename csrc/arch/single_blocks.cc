// What a config.json says about layers that are one block alone.
#include <algorithm>
#include <string>
#include <vector>

#include "arch/model_config.h"

namespace mlc_native {
namespace {

constexpr char kBlockTypes[] = "layers_block_type";
constexpr char kBlockPattern[] = "hybrid_override_pattern";

constexpr LayerConfig kMambaBlock{.has_ffn = false, .is_recurrent = true};
constexpr LayerConfig kAttentionBlock{.has_ffn = false};
constexpr LayerConfig kFeedForwardBlock{.has_attention = false};
constexpr LayerConfig kExpertBlock{.has_experts = true, .has_attention = false};

// The spellings of each kind: those of the hub, and those that transformers writes.
struct BlockKind {
  std::string_view type;
  char letter;
  LayerConfig layer;
};
constexpr BlockKind kBlockKinds[] = {
    {"mamba", 'M', kMambaBlock},
    {"attention", '*', kAttentionBlock},
    {"mlp", '-', kFeedForwardBlock},
    {"moe", 'E', kExpertBlock},
    {"linear_attention", 'M', kMambaBlock},
    {"full_attention", '*', kAttentionBlock},
};

std::vector<LayerConfig> ReadTypes(const ConfigFields& fields) {
  std::vector<LayerConfig> layers;
  for (const std::string& type : fields.Strings(kBlockTypes)) {
    const auto* const kind = std::ranges::find(kBlockKinds, type, &BlockKind::type);
    if (kind == std::end(kBlockKinds)) {
      fields.Fail(kBlockTypes,
                  "= \"" + type + "\" is not supported; supported: mamba, attention, mlp, moe");
    }
    layers.push_back(kind->layer);
  }
  return layers;
}

std::vector<LayerConfig> ReadPattern(const ConfigFields& fields) {
  std::vector<LayerConfig> layers;
  for (const char letter : fields.String(kBlockPattern)) {
    const auto* const kind = std::ranges::find(kBlockKinds, letter, &BlockKind::letter);
    if (kind == std::end(kBlockKinds)) {
      fields.FailValue(kBlockPattern,
                       "a text of the letters M (Mamba-2), * (attention), - (MLP) and E "
                       "(experts)");
    }
    layers.push_back(kind->layer);
  }
  return layers;
}

}  // namespace

std::vector<LayerConfig> ReadBlocks(const ConfigFields& fields, const ArchSpec& arch) {
  if (arch.has_mamba_alone) {
    const int64_t usual = arch.scan != nullptr ? 32 : 64;
    const int64_t count = fields.Integer("num_hidden_layers", usual, 1, kMaxLayers);
    return std::vector<LayerConfig>(static_cast<size_t>(count), kMambaBlock);
  }
  const bool has_pattern = !fields.Has(kBlockTypes) && fields.Has(kBlockPattern);
  const char* const field = has_pattern ? kBlockPattern : kBlockTypes;
  std::vector<LayerConfig> layers = {kMambaBlock, kExpertBlock, kAttentionBlock, kFeedForwardBlock};
  if (has_pattern) {
    layers = ReadPattern(fields);
  } else if (fields.Has(kBlockTypes)) {
    layers = ReadTypes(fields);
  }
  if (std::ssize(layers) > kMaxLayers) {
    fields.Fail(field, "has " + std::to_string(layers.size()) + " layers; the limit is " +
                           std::to_string(kMaxLayers));
  }
  if (std::ranges::none_of(layers, &LayerConfig::has_attention)) {
    fields.Fail(field, "has no layer with attention or Mamba-2");
  }
  return layers;
}

}  // namespace mlc_native
