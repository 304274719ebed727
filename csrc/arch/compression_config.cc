// What a config.json says of compressed attention, hyper-connections and experts of tokens.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "arch/model_config.h"
#include "arch/rope_config.h"
#include "kernels/compression.h"

namespace mlc_native {
namespace {

constexpr char kSliding[] = "sliding_attention";
constexpr char kSparse[] = "compressed_sparse_attention";
constexpr char kHeavy[] = "heavily_compressed_attention";
constexpr int64_t kAbsentSparseRate = 4;
constexpr int64_t kAbsentHeavyRate = 128;

// The first entries of a list, one for each layer. Checkpoints may list further layers, which only
// draft.
template <typename T>
std::vector<T> OfLayers(const ConfigFields& fields, const char* field, std::vector<T> values,
                        size_t num_layers) {
  if (values.size() < num_layers) {
    fields.Fail(field, "has " + std::to_string(values.size()) +
                           " entries, \"num_hidden_layers\" is " + std::to_string(num_layers));
  }
  values.resize(num_layers);
  return values;
}

std::vector<std::string> ReadTypes(const ConfigFields& fields, size_t num_layers) {
  constexpr char kTypes[] = "layer_types", kRatios[] = "compress_ratios";
  if (fields.Has(kTypes)) return OfLayers(fields, kTypes, fields.Strings(kTypes), num_layers);
  std::vector<std::string> types;
  if (fields.Has(kRatios)) {
    for (const int64_t ratio : OfLayers(fields, kRatios, fields.Sizes(kRatios), num_layers)) {
      if (ratio != 0 && ratio != kAbsentSparseRate && ratio != kAbsentHeavyRate) {
        fields.FailValue(kRatios, "a list of 0, 4 and 128");
      }
      types.emplace_back(ratio == 0 ? kSliding : ratio == kAbsentSparseRate ? kSparse : kHeavy);
    }
    return types;
  }
  for (size_t i = 0; i < num_layers; ++i)
    types.emplace_back(i > 1 && i % 2 == 1 ? kSparse : kHeavy);
  return types;
}

// Tokens per entry of layers of this type.
int64_t ReadRate(const ConfigFields& fields, const char* type, const char* own, int64_t absent) {
  const ConfigFields rates = fields.Object("compress_rates");
  const int64_t rate = rates.Integer(type, absent, 1, kernels::kMaxTokensPerEntry);
  return fields.Integer(own, rate, 1, kernels::kMaxTokensPerEntry);
}

void ReadEntryLayers(const ConfigFields& fields, std::vector<LayerConfig>& layers) {
  const std::vector<std::string> types = ReadTypes(fields, layers.size());
  const int64_t sparse = ReadRate(fields, kSparse, "compress_rate_csa", kAbsentSparseRate);
  const int64_t heavy = ReadRate(fields, kHeavy, "compress_rate_hca", kAbsentHeavyRate);
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerConfig& layer = layers[i];
    layer.chooses_entries = types[i] == kSparse;
    if (types[i] == kSliding) continue;
    if (types[i] != kSparse && types[i] != kHeavy) {
      fields.Fail("layer_types", "= \"" + types[i] + "\" is not supported; supported: " + kSliding +
                                     ", " + kSparse + ", " + kHeavy);
    }
    layer.tokens_per_entry = layer.chooses_entries ? sparse : heavy;
    layer.rope = 1;
  }
}

void ReadTokenExperts(const ConfigFields& fields, std::vector<LayerConfig>& layers) {
  constexpr char kTypes[] = "mlp_layer_types";
  constexpr int64_t kAbsentLayers = 3;
  if (!fields.Has(kTypes)) {
    const int64_t count = fields.Integer("num_hash_layers", kAbsentLayers, 0, kMaxLayers);
    for (size_t i = 0; i < layers.size(); ++i) {
      layers[i].has_token_experts = static_cast<int64_t>(i) < count;
    }
    return;
  }
  const std::vector<std::string> types =
      OfLayers(fields, kTypes, fields.Strings(kTypes), layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    if (types[i] != "hash_moe" && types[i] != "moe") {
      fields.Fail(kTypes, "= \"" + types[i] + "\" is not supported; supported: hash_moe, moe");
    }
    layers[i].has_token_experts = types[i] == "hash_moe";
  }
}

}  // namespace

void CheckIndexRope(const ConfigFields& fields, const ModelConfig& config) {
  if (!config.compression) return;
  const int64_t rotated = config.ropes.back().rotary_dim;
  if (config.compression->index.head_dim >= rotated) return;
  fields.FailValue("index_head_dim",
                   "at least the " + std::to_string(rotated) + " rotated elements of a head");
}

void ReadCompression(const ConfigFields& fields, ModelConfig& config) {
  if (!config.arch->has_compressed_attention) return;
  if (config.num_kv_heads != 1) fields.FailValue("num_key_value_heads", "1");
  fields.Integer("n_shared_experts", 1, 1, 1);
  CompressionConfig compression;
  compression.q_rank = fields.Integer("q_lora_rank", 1024, 1, kMaxDimension);
  compression.out_groups = fields.Integer("o_groups", 8, 1, config.num_heads);
  compression.out_rank =
      fields.Integer("o_lora_rank", 1024, 1, kMaxDimension / compression.out_groups);
  if (config.num_heads % compression.out_groups != 0) {
    fields.FailValue("o_groups",
                     "a divisor of \"num_attention_heads\" = " + std::to_string(config.num_heads));
  }
  KeyChoiceConfig& index = compression.index;
  index.head_dim = fields.Integer("index_head_dim", 128, 1, kMaxDimension);
  index.num_heads = fields.Integer("index_n_heads", 64, 1, kMaxDimension / index.head_dim);
  index.num_chosen = fields.Integer("index_topk", 512, 1, kMaxPositions);
  config.compression = compression;
  ReadEntryLayers(fields, config.layers);
  ReadTokenExperts(fields, config.layers);
  if (config.layers.front().window.size == 0) {
    fields.FailValue("sliding_window", "an integer of at least 1");
  }
  config.hyper_connections = {
      .count = fields.Integer("hc_mult", 4, 2, kernels::kMaxStreams),
      .rounds = fields.Integer("hc_sinkhorn_iters", 20, 1, 1000),
      .floor = static_cast<float>(fields.Positive("hc_eps", 1e-6)),
  };
}

}  // namespace mlc_native
