// What a config.json says about layers with short convolutions.
#include <algorithm>
#include <string>
#include <vector>

#include "arch/model_config.h"

namespace mlc_native {
namespace {

// Without layer_types, every layer attends unless full_attn_idxs lists those that do. In a family
// with windows, layers with one do, and layers 2, 6, 10, ...
void ReadKinds(const ConfigFields& fields, const ArchSpec& arch, std::vector<LayerConfig>& layers) {
  constexpr char kAttending[] = "full_attn_idxs";
  static constexpr std::string_view kWindows[] = {"sliding_attention"};
  if (fields.Has("layer_types")) {
    std::span<const std::string_view> others;
    if (arch.window_rule != WindowRule::kNever) others = kWindows;
    const std::vector<bool> has = LayersOfType(fields, layers.size(), "conv", others);
    for (size_t i = 0; i < has.size(); ++i) layers[i].is_recurrent = has[i];
    return;
  }
  if (arch.window_rule != WindowRule::kNever) {
    for (size_t i = 0; i < layers.size(); ++i) {
      layers[i].is_recurrent = layers[i].window.size == 0 && i % 4 != 2;
    }
    return;
  }
  if (!fields.Has(kAttending)) return;
  ReadAttendingLayers(fields, kAttending, layers);
}

// The size of the matrices: transformers makes it of the one that a file gives.
int64_t AdjustedFfnSize(const ConfigFields& fields, int64_t given) {
  constexpr char kFactor[] = "block_ffn_dim_multiplier";
  if (!fields.Bool("block_auto_adjust_ff_dim", true)) return given;
  int64_t size = 2 * given / 3;
  if (!fields.IsNull(kFactor)) {
    const double wanted = fields.Positive(kFactor, 1.0) * static_cast<double>(size);
    const int64_t multiple = fields.Integer("block_multiple_of", 256, 1, kMaxDimension);
    if (wanted > static_cast<double>(kMaxDimension)) {
      fields.FailValue(kFactor, "less: the blocks would be too wide");
    }
    size = (static_cast<int64_t>(wanted) + multiple - 1) / multiple * multiple;
  }
  if (size < 1 || size > kMaxDimension) {
    fields.Fail("block_auto_adjust_ff_dim", "gives feed-forward blocks of " + std::to_string(size));
  }
  return size;
}

}  // namespace

void ReadShortConvolutions(const ConfigFields& fields, ModelConfig& config) {
  constexpr int64_t kMostWidth = 8;
  if (!config.arch->has_short_convolutions) return;
  if (config.arch->adjusts_ffn_size) config.ffn_size = AdjustedFfnSize(fields, config.ffn_size);
  ReadKinds(fields, *config.arch, config.layers);
  if (std::ranges::none_of(config.layers, &LayerConfig::is_recurrent)) return;
  if (fields.Bool("conv_bias", false)) {
    fields.Fail("conv_bias", "= true is not supported");
  }
  const int64_t width =
      fields.Integer("conv_L_cache", config.arch->defaults.conv_width, 2, kMostWidth);
  config.convolution = ConvolutionConfig{.channels = config.hidden_size, .width = width};
}

}  // namespace mlc_native
