// Runs a target on one input and tells refused inputs from findings. One thread.
#pragma once

#include "targets.h"

namespace mlc_native::fuzz {

// Returns normally if the target returned, or threw an error for callers. Ends the process (abort)
// after naming any other exception on stderr.
void RunOnce(const Target& target, Bytes input);

// nullptr if there is none of that name.
const Target* FindTarget(std::string_view name);

}  // namespace mlc_native::fuzz
