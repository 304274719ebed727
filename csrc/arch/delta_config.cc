// What a config.json says about layers with linear attention.
#include <algorithm>
#include <string>

#include "arch/model_config.h"

namespace mlc_native {
namespace {

constexpr int64_t kMostHeads = 1024, kMostDim = 1024, kMostWidth = 8;

DeltaConfig ReadGatedDelta(const ConfigFields& fields, const ModelConfig& config) {
  DeltaConfig delta;
  const bool is_olmo = config.arch->is_olmo_delta;
  const int64_t heads = config.num_heads;
  delta.num_key_heads = fields.Integer("linear_num_key_heads", is_olmo ? heads : 16, 1, kMostHeads);
  delta.num_value_heads =
      fields.Integer("linear_num_value_heads", is_olmo ? heads : 32, 1, kMostHeads);
  delta.key_dim = fields.Integer("linear_key_head_dim",
                                 is_olmo ? 3 * config.hidden_size / (4 * delta.num_key_heads) : 128,
                                 1, kMostDim);
  delta.value_dim =
      fields.Integer("linear_value_head_dim", is_olmo ? 2 * delta.key_dim : 128, 1, kMostDim);
  if (is_olmo && fields.Bool("linear_allow_neg_eigval", true)) delta.beta_scale = 2;
  delta.conv_width = fields.Integer("linear_conv_kernel_dim", 4, 2, kMostWidth);
  if (delta.num_value_heads % delta.num_key_heads != 0) {
    fields.FailValue("linear_num_value_heads", "a multiple of \"linear_num_key_heads\" = " +
                                                   std::to_string(delta.num_key_heads));
  }
  return delta;
}

// ---- Kimi Delta Attention ----

constexpr char kSection[] = "linear_attn_config";
constexpr char kAttending[] = "full_attn_layers";
constexpr char kRecurrent[] = "kda_layers";

// Of lists that count layers from 1 on: each layer is in one of them.
void ReadListedLayers(const ConfigFields& linear, std::vector<LayerConfig>& layers) {
  std::vector<int> times(layers.size());
  for (const char* field : {kAttending, kRecurrent}) {
    for (const int64_t number : linear.Sizes(field)) {
      if (number < 1 || number > std::ssize(layers)) {
        linear.Fail(field, "has " + std::to_string(number) + ", which is no layer of the model");
      }
      const auto layer = static_cast<size_t>(number - 1);
      ++times[layer];
      layers[layer].is_recurrent = field == kRecurrent;
    }
  }
  const auto wrong = std::ranges::find_if(times, [](int count) { return count != 1; });
  if (wrong == times.end()) return;
  linear.Fail(kRecurrent, std::string("and \"") + kAttending +
                              "\" must have each layer once, and " + "layer " +
                              std::to_string(wrong - times.begin() + 1) + " is there " +
                              std::to_string(*wrong) + " times");
}

void ReadKimiLayers(const ConfigFields& fields, const ConfigFields& linear,
                    std::vector<LayerConfig>& layers) {
  constexpr size_t kInterval = 4;
  if (fields.Has("layer_types")) return ReadRecurrentLayers(fields, layers);
  if (linear.Has(kAttending) && linear.Has(kRecurrent)) return ReadListedLayers(linear, layers);
  for (size_t i = 0; i < layers.size(); ++i) layers[i].is_recurrent = i == 0 || i % kInterval != 0;
}

DeltaConfig ReadKimiDelta(const ConfigFields& fields, const ConfigFields& linear) {
  const auto size = [&](const char* of_section, const char* field, int64_t absent, int64_t least,
                        int64_t most) {
    return linear.Has(of_section) ? linear.Integer(of_section, absent, least, most)
                                  : fields.Integer(field, absent, least, most);
  };
  DeltaConfig delta;
  delta.num_key_heads = size("num_heads", "linear_num_heads", 32, 1, kMostHeads);
  delta.num_value_heads = delta.num_key_heads;
  delta.key_dim = size("head_dim", "linear_head_dim", 128, 1, kMostDim);
  delta.value_dim = delta.key_dim;
  delta.gate_rank = delta.key_dim;
  delta.conv_width = size("short_conv_kernel_size", "linear_conv_kernel_dim", 4, 2, kMostWidth);
  return delta;
}

}  // namespace

void ReadDelta(const ConfigFields& fields, ModelConfig& config) {
  if (!config.arch->has_delta_layers) return;
  const bool is_kimi = config.arch->decays_channels;
  const ConfigFields linear = fields.Object(kSection);
  if (is_kimi) {
    ReadKimiLayers(fields, linear, config.layers);
  } else {
    ReadRecurrentLayers(fields, config.layers);
    const bool attends = !std::ranges::all_of(config.layers, &LayerConfig::is_recurrent);
    if (config.arch->is_olmo_delta && !attends) config.layers.back().is_recurrent = false;
  }
  if (std::ranges::none_of(config.layers, &LayerConfig::is_recurrent)) return;
  if (config.activation != kernels::Activation::kSilu) {
    fields.FailValue("hidden_act", "\"silu\" in a model with linear attention");
  }
  config.delta = is_kimi ? ReadKimiDelta(fields, linear) : ReadGatedDelta(fields, config);
  const double eps = config.arch->delta_norm_eps;
  config.delta->norm_eps = eps != 0 ? static_cast<float>(eps) : config.norm_eps;
}

}  // namespace mlc_native
