// What a config.json says of the choice of keys.
#include <algorithm>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "arch/rope_config.h"
#include "support/json.h"

namespace mlc_native {
namespace {

constexpr char kIndexerTypes[] = "indexer_types";
constexpr char kIndexPattern[] = "index_topk_pattern";

// One for each layer; empty: the fields do not list them.
std::vector<std::string> ListedTypes(const ConfigFields& fields) {
  if (fields.Has(kIndexerTypes)) return fields.Strings(kIndexerTypes);
  const JsonValue* const pattern = fields.Find(kIndexPattern);
  if (pattern == nullptr) return {};
  if (!pattern->is_string()) return fields.Strings(kIndexPattern);
  std::vector<std::string> types;
  for (const char letter : pattern->AsString()) {
    if (letter != 'F' && letter != 'S') fields.FailValue(kIndexPattern, "letters F and S");
    types.emplace_back(letter == 'F' ? "full" : "shared");
  }
  return types;
}

void ReadSharedChoices(const ConfigFields& fields, std::vector<LayerConfig>& layers) {
  const std::vector<std::string> types = ListedTypes(fields);
  const char* const field = fields.Has(kIndexerTypes) ? kIndexerTypes : kIndexPattern;
  if (!types.empty() && types.size() != layers.size()) {
    fields.Fail(field, "has " + std::to_string(types.size()) +
                           " entries, \"num_hidden_layers\" is " + std::to_string(layers.size()));
  }
  const int64_t step = std::max<int64_t>(fields.Integer("index_topk_freq", 1, 0, kMaxLayers), 1);
  const int64_t first = fields.Integer("index_skip_topk_offset", 2, 0, kMaxLayers) - 1;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (types.empty()) {
      const int64_t behind = std::max<int64_t>(static_cast<int64_t>(i) - first, 0);
      layers[i].chooses_keys = behind % step == 0;
      continue;
    }
    if (types[i] != "full" && types[i] != "shared") {
      fields.Fail(field, "= \"" + types[i] + "\" is not supported; supported: full, shared");
    }
    layers[i].chooses_keys = types[i] == "full";
  }
  if (!layers.front().chooses_keys) {
    fields.Fail(field, "must begin with a layer that chooses its keys");
  }
}

}  // namespace

void ReadKeyChoice(const ConfigFields& fields, ModelConfig& config) {
  const KeyChoiceRule& rule = config.arch->key_choice;
  if (!rule.exists) return;
  KeyChoiceConfig choice;
  choice.head_dim = fields.Integer("index_head_dim", rule.absent.head_dim, 1, kMaxDimension);
  choice.num_heads =
      fields.Integer("index_n_heads", rule.absent.num_heads, 1, kMaxDimension / choice.head_dim);
  choice.num_chosen = fields.Integer("index_topk", rule.absent.num_chosen, 1, kMaxPositions);
  if (config.latent->q_rank == 0) {
    fields.Fail("q_lora_rank", "= null is not supported: the index reads what queries come from");
  }
  if (choice.head_dim < config.latent->rope_dim) {
    fields.FailValue("index_head_dim",
                     "at least \"qk_rope_head_dim\" = " + std::to_string(config.latent->rope_dim));
  }
  for (LayerConfig& layer : config.layers) layer.chooses_keys = true;
  if (rule.may_share) ReadSharedChoices(fields, config.layers);
  config.key_choice = choice;
}

}  // namespace mlc_native
