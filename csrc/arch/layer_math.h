// What a config.json says about the mathematics of a layer: activation, biases, norms, and what
// scales values on their way.
#pragma once

#include "arch/model_config.h"
#include "support/config_fields.h"

namespace mlc_native {

// Sets these numbers of `config`, of which the family and the sizes are known. Throws LoadError.
void ReadLayerMath(const ConfigFields& fields, bool gelu_is_tanh, ModelConfig& config);

}  // namespace mlc_native
