// Checks of the settings of speculation. Pure; any thread.
#pragma once

#include "mlc_native/config.h"

namespace mlc_native {

// True if a draft head guesses in this mode.
bool HasDraftHead(SpeculativeMode mode);

// Throws InvalidConfig for a number of additional models that does not go with the mode.
void CheckAdditionalModels(const EngineConfig& config);

}  // namespace mlc_native
