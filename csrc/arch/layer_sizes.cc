// What a config.json says about layers with sizes of their own, layers that read the keys and
// values of others, and inputs of layers.
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>

#include "arch/model_config.h"

namespace mlc_native {
namespace {

constexpr char kLayerFields[] = "per_layer_config";
constexpr char kShared[] = "num_kv_shared_layers";
constexpr int64_t kAbsentGlobalHeadDim = 512;
constexpr int64_t kAbsentInputSize = 256;
constexpr int64_t kAbsentInputVocab = 262144;

// The own size of a layer: 0 where it is that of the decoder.
int64_t OwnSize(int64_t size, int64_t of_decoder) { return size == of_decoder ? 0 : size; }

// Sets the sizes of the heads of a layer from the fields of these names.
void ReadHeads(const ConfigFields& fields, const char* head_dim, int64_t absent_head_dim,
               const char* kv_heads, const ModelConfig& config, LayerConfig* layer) {
  const int64_t size =
      fields.Integer(head_dim, absent_head_dim, 1, kMaxDimension / config.num_heads);
  const int64_t heads = kv_heads == nullptr
                            ? config.num_kv_heads
                            : fields.Integer(kv_heads, config.num_kv_heads, 1, config.num_heads);
  if (config.num_heads % heads != 0) {
    fields.FailValue(kv_heads,
                     "a divisor of \"num_attention_heads\" = " + std::to_string(config.num_heads));
  }
  layer->own_head_dim = OwnSize(size, config.head_dim);
  layer->own_kv_heads = OwnSize(heads, config.num_kv_heads);
}

// transformers writes all numbers with as many digits: "05".
std::optional<size_t> LayerOfName(const std::string& name) {
  constexpr size_t kMostDigits = 6;
  const bool is_number = !name.empty() && name.size() <= kMostDigits &&
                         name.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? std::optional<size_t>(std::stoul(name)) : std::nullopt;
}

void ReadHeadsOfEachLayer(const ConfigFields& fields, ModelConfig& config) {
  const ConfigFields layers = fields.Object(kLayerFields);
  for (const std::string& name : layers.Names()) {
    const ConfigFields own = layers.Object(name.c_str());
    for (const std::string& field : own.Names()) {
      if (field == "head_dim" || field == "num_key_value_heads") continue;
      own.Fail(field, "of a layer is not supported; supported: head_dim, num_key_value_heads");
    }
    const std::optional<size_t> number = LayerOfName(name);
    if (!number || *number >= config.layers.size()) layers.Fail(name, "is no layer of the model");
    ReadHeads(own, "head_dim", config.head_dim, "num_key_value_heads", config,
              &config.layers[*number]);
  }
}

// Layers of a kind, with a window or without one, have a rope and may share keys and values.
void CheckKinds(const ConfigFields& fields, const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers) {
    const auto first = std::ranges::find_if(config.layers, [&](const LayerConfig& other) {
      return (other.window.size > 0) == (layer.window.size > 0);
    });
    if (first->own_head_dim == layer.own_head_dim && first->own_kv_heads == layer.own_kv_heads) {
      continue;
    }
    fields.Fail(kLayerFields,
                "gives layers of one of the \"layer_types\" different sizes, which is not "
                "supported");
  }
}

void ReadQueryHeads(const ConfigFields& fields, ModelConfig& config) {
  const std::string field(config.arch->layer_heads_field);
  if (field.empty() || !fields.Has(field.c_str())) return;
  const std::vector<int64_t> heads = fields.Sizes(field.c_str());
  const int64_t most = kMaxDimension / config.head_dim;
  const auto is_wrong = [&](int64_t count) {
    return count < 1 || count > most || count % config.num_kv_heads != 0;
  };
  if (heads.size() != config.layers.size() || std::ranges::any_of(heads, is_wrong)) {
    fields.Fail(
        field, "must be a list of \"num_hidden_layers\" = " + std::to_string(config.layers.size()) +
                   " integers in [1, " + std::to_string(most) +
                   "] that \"num_key_value_heads\" = " + std::to_string(config.num_kv_heads) +
                   " divides");
  }
  for (size_t i = 0; i < heads.size(); ++i) {
    config.layers[i].own_heads = OwnSize(heads[i], config.num_heads);
  }
}

void ReadValueDim(const ConfigFields& fields, ModelConfig& config) {
  const int64_t absent = config.arch->defaults.value_head_dim;
  if (absent == 0) return;
  const int64_t dim = fields.Integer("v_head_dim", absent, 1, config.head_dim);
  config.stored_value_dim = OwnSize(dim, config.head_dim);
}

// The decoder's number becomes that of windows.
void ReadWindowKvHeads(const ConfigFields& fields, ModelConfig& config) {
  if (!config.arch->reads_window_kv_heads) return;
  constexpr char kField[] = "swa_num_key_value_heads";
  const int64_t others = config.num_kv_heads;
  config.num_kv_heads = fields.Integer(kField, 2 * others, 1, kMaxDimension / config.head_dim);
  if (config.num_heads % config.num_kv_heads != 0) {
    fields.Fail(kField, "= " + std::to_string(config.num_kv_heads) +
                            " must be a divisor of \"num_attention_heads\" = " +
                            std::to_string(config.num_heads));
  }
  for (LayerConfig& layer : config.layers) {
    if (layer.window.size == 0) layer.own_kv_heads = OwnSize(others, config.num_kv_heads);
  }
}

void ReadSharing(const ConfigFields& fields, ModelConfig& config) {
  const auto num_layers = std::ssize(config.layers);
  const int64_t absent = config.arch->defaults.num_kv_shared_layers;
  const int64_t num_shared = fields.Integer(kShared, absent, 0, num_layers - 1);
  if (num_shared >= num_layers) {  // the family's default, which is not checked
    fields.FailValue(kShared, "given, in [0, " + std::to_string(num_layers - 1) + "]");
  }
  const bool wide = config.arch->reads_layer_sizes && fields.Bool("use_double_wide_mlp", false);
  const auto first = config.layers.begin() + (num_layers - num_shared);
  for (auto layer = first; layer != config.layers.end(); ++layer) {
    const auto source = std::find_if(std::make_reverse_iterator(first), config.layers.rend(),
                                     [&](const LayerConfig& other) {
                                       return (other.window.size > 0) == (layer->window.size > 0);
                                     });
    if (source == config.layers.rend()) {
      fields.Fail(kShared, "= " + std::to_string(num_shared) +
                               " leaves no layer of one of the \"layer_types\" that has keys and "
                               "values of its own");
    }
    layer->kv_source = static_cast<int>(config.layers.rend() - source) - 1;
    if (!wide) continue;
    if (!config.arch->experts.enabled_by.empty() &&
        fields.Bool(std::string(config.arch->experts.enabled_by).c_str(), false)) {
      fields.Fail("use_double_wide_mlp", "is not supported with experts");
    }
    layer->own_ffn_size = 2 * config.ffn_size;
  }
}

// A list of the sizes of feed-forward blocks.
void ReadFfnSizes(const ConfigFields& fields, ModelConfig& config) {
  const std::string field(config.arch->ffn_size_field);
  const JsonValue* const value = fields.Find(field.c_str());
  if (value == nullptr || !value->is_array()) return;
  const std::vector<int64_t> sizes = fields.Sizes(field.c_str());
  const bool fits =
      sizes.size() == config.layers.size() &&
      std::ranges::all_of(sizes, [](int64_t size) { return size >= 1 && size <= kMaxDimension; });
  if (!fits) {
    fields.FailValue(field.c_str(), "an integer, or a list of \"num_hidden_layers\" = " +
                                        std::to_string(config.layers.size()) + " integers in [1, " +
                                        std::to_string(kMaxDimension) + "]");
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    config.layers[i].own_ffn_size = OwnSize(sizes[i], config.ffn_size);
  }
}

void ReadHeadsOfLayers(const ConfigFields& fields, ModelConfig& config) {
  const bool keys_are_values = fields.Bool("attention_k_eq_v", false);
  if (fields.Has(kLayerFields)) {
    ReadHeadsOfEachLayer(fields, config);
  } else {
    for (LayerConfig& layer : config.layers) {
      if (layer.window.size > 0) continue;
      ReadHeads(fields, "global_head_dim", kAbsentGlobalHeadDim,
                keys_are_values ? "num_global_key_value_heads" : nullptr, config, &layer);
    }
  }
  CheckKinds(fields, config);
  for (LayerConfig& layer : config.layers) {
    layer.keys_are_values = keys_are_values && layer.window.size == 0;
  }
}

}  // namespace

void ReadLayerSizes(const ConfigFields& fields, ModelConfig& config) {
  ReadQueryHeads(fields, config);
  ReadValueDim(fields, config);
  ReadWindowKvHeads(fields, config);
  if (config.arch->reads_layer_sizes) ReadHeadsOfLayers(fields, config);
  if (config.arch->reads_ffn_sizes) ReadFfnSizes(fields, config);
  if (!config.arch->shares_last_keys) return;
  ReadSharing(fields, config);
  for (LayerConfig& layer : config.layers) layer.keys_are_values &= layer.has_own_kv();
}

// The product of an embedding is scaled by 1 / sqrt(hidden_size) in transformers, in front of a
// norm, which gives the same with another epsilon.
void ReadLayerInputs(const ConfigFields& fields, ModelConfig& config) {
  constexpr char kSize[] = "hidden_size_per_layer_input", kVocab[] = "vocab_size_per_layer_input";
  if (!config.arch->reads_layer_inputs || fields.IsNull(kSize)) return;
  LayerInputConfig inputs;
  inputs.size = fields.Integer(kSize, kAbsentInputSize, 0,
                               kMaxDimension / static_cast<int64_t>(config.layers.size()));
  if (inputs.size == 0) return;
  inputs.vocab_size = fields.Integer(kVocab, kAbsentInputVocab, 1, kMaxDimension);
  inputs.is_short = inputs.vocab_size < config.vocab_size;
  if (inputs.is_short && !config.arch->has_residual_streams) {
    fields.FailValue(kVocab, "at least \"vocab_size\" = " + std::to_string(config.vocab_size));
  }
  inputs.norm_eps = config.norm_eps * static_cast<float>(config.hidden_size);
  config.layer_inputs = inputs;
}

}  // namespace mlc_native
