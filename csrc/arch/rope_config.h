// The rope parameters of a config.json, in the spelling of transformers 5 (rope_parameters, per
// layer type for some families) and in the older one (rope_theta, rope_scaling).
#pragma once

#include "arch/model_config.h"
#include "checkpoint/config_fields.h"

namespace mlc_native {

// Fills config.ropes (one, or with arch->local_rope two: layers without and with a window) and
// lowers config.max_positions to what the scaling can do exactly. head_dim and max_positions are
// set. Throws LoadError.
void ReadRopes(const ConfigFields& fields, ModelConfig& config);

}  // namespace mlc_native
