// What a config.json says about layers with linear attention.
#include <algorithm>
#include <string>

#include "arch/model_config.h"

namespace mlc_native {

void ReadDelta(const ConfigFields& fields, ModelConfig& config) {
  constexpr int64_t kMostHeads = 1024, kMostDim = 1024, kMostWidth = 8;
  if (!config.arch->has_delta_layers) return;
  ReadRecurrentLayers(fields, config.layers);
  if (std::ranges::none_of(config.layers, &LayerConfig::is_recurrent)) return;
  DeltaConfig delta;
  delta.num_key_heads = fields.Integer("linear_num_key_heads", 16, 1, kMostHeads);
  delta.num_value_heads = fields.Integer("linear_num_value_heads", 32, 1, kMostHeads);
  delta.key_dim = fields.Integer("linear_key_head_dim", 128, 1, kMostDim);
  delta.value_dim = fields.Integer("linear_value_head_dim", 128, 1, kMostDim);
  delta.conv_width = fields.Integer("linear_conv_kernel_dim", 4, 2, kMostWidth);
  if (delta.num_value_heads % delta.num_key_heads != 0) {
    fields.FailValue("linear_num_value_heads", "a multiple of \"linear_num_key_heads\" = " +
                                                   std::to_string(delta.num_key_heads));
  }
  config.delta = delta;
}

}  // namespace mlc_native
