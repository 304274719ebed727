// The parameters of a decoder, a draft head or Medusa's heads, and the tensors that fill them.
// Pure; any thread.
#pragma once

#include "arch/model_config.h"
#include "weights/weight_map.h"

namespace mlc_native {

WeightMap MakeWeightMap(const ModelConfig& config, const WeightNames& names);

}  // namespace mlc_native
