// The rope parameters of a config.json, in the spelling of transformers 5 (rope_parameters, per
// layer type for some families) and in the older one (rope_theta, rope_scaling).
#pragma once

#include <cstdint>
#include <vector>

#include "arch/arch_spec.h"
#include "arch/rope.h"
#include "support/config_fields.h"

namespace mlc_native {

// The largest context that a config.json may state.
inline constexpr int64_t kMaxPositions = int64_t{1} << 30;

// One rope, or with arch.local_rope two: of the layers without a window and with one.
// `max_positions` is the context that the model states. Throws LoadError.
std::vector<RopeConfig> ReadRopes(const ConfigFields& fields, const ArchSpec& arch,
                                  int64_t head_dim, int64_t max_positions);

// The largest context that all ropes compute exactly, at most `max_positions`.
int64_t ExactPositions(const std::vector<RopeConfig>& ropes, int64_t max_positions);

}  // namespace mlc_native
