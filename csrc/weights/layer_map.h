// The parameters of one layer of a decoder, and the tensors that fill them. Pure; any thread.
#pragma once

#include <string>

#include "arch/model_config.h"
#include "weights/weight_map.h"

namespace mlc_native {

// Adds what the layer has to map->layers. `prefix` is in front of the names of its tensors.
void AddLayer(const ModelConfig& config, const LayerConfig& layer, const WeightNames& names,
              const std::string& prefix, WeightMap* map);

}  // namespace mlc_native
