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

// How long sequences get.
struct SequenceLengths {
  int64_t max_positions = 0;  // the context that the model states
  int64_t longest = 0;        // what will be served
};

// The object with the parameters of the ropes; the family's default where there is none.
ConfigFields RopeParameters(const ConfigFields& fields, const ArchSpec& arch);

// One rope, or with arch.local_rope two: of the layers without a window and with one.
//
// longrope has two lists of factors: transformers takes the long one for a sequence that exceeds
// the original context, also for its first tokens. Keys in a cache cannot change when a sequence
// grows, so that the list is chosen once, by lengths.longest, as vLLM does. Throws LoadError.
struct RopedDims {  // elements of a head that ropes are for
  int64_t full = 0;
  int64_t local = 0;  // of layers with a window
};
std::vector<RopeConfig> ReadRopes(const ConfigFields& fields, const ArchSpec& arch,
                                  const RopedDims& dims, const SequenceLengths& lengths);

// How many positions the texts of the training had, of a family with max_trained_positions. The
// base of the rope follows the length of longer texts where rotary_scaling_factor says so, which is
// not computed; that of others is the same with it and without it. Throws LoadError.
int64_t TrainedPositions(const ConfigFields& fields, const ArchSpec& arch);

// The longest sequence that the ropes are right for, at most lengths.max_positions.
int64_t ExactPositions(const std::vector<RopeConfig>& ropes, const SequenceLengths& lengths);

}  // namespace mlc_native
