// Checks of the settings of speculation. Pure; any thread.
#pragma once

#include "mlc_native/config.h"

namespace mlc_native {

// Throw InvalidConfig: a mode that is understood and not supported; a number of additional models
// that does not go with the mode.
void CheckSpeculativeMode(SpeculativeMode mode);
void CheckAdditionalModels(const EngineConfig& config);

}  // namespace mlc_native
