// The parameters of one layer of a decoder, and the tensors that fill them. Pure; any thread.
#pragma once

#include <string>

#include "arch/model_config.h"
#include "weights/weight_map.h"

namespace mlc_native {

// What is in front of the names of the tensors of a layer.
std::string PrefixOfLayer(const ModelConfig& config, const WeightNames& names, size_t index);

// Adds what the layer has to map->layers. `prefix`: as above, unless it is one of a draft head.
void AddLayer(const ModelConfig& config, size_t index, const WeightNames& names,
              const std::string& prefix, WeightMap* map);

}  // namespace mlc_native
