// Which layers of a decoder have a window and which rope they have, from the fields of its family.
// A value; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "arch/arch_spec.h"
#include "arch/rope.h"
#include "support/config_fields.h"

namespace mlc_native {

struct LayerConfig {
  static constexpr int kNoRope = -1;

  int64_t window = 0;  // 0: whole context
  int rope = 0;        // index into ModelConfig::ropes, or kNoRope
  bool has_experts = false;
  bool is_recurrent = false;  // it has linear attention, and a state in place of keys and values
};

// Layers with their windows and ropes. Throws LoadError.
std::vector<LayerConfig> ReadLayers(const ConfigFields& fields, const ArchSpec& arch,
                                    size_t num_layers);

// Says which layers have linear attention, in a family with such ones. Throws LoadError.
void ReadRecurrentLayers(const ConfigFields& fields, std::vector<LayerConfig>& layers);

// Where layer_rope_theta gives each layer a base of its own, replaces the rope by one for each
// base. A layer whose base is 0 has none.
void ReadLayerThetas(const ConfigFields& fields, std::vector<RopeConfig>& ropes,
                     std::vector<LayerConfig>& layers);

}  // namespace mlc_native
