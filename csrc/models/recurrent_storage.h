// RecurrentStorage is the memory of the states of layers that have these in place of keys and
// values: those with linear attention, a short convolution or Mamba. kv/ decides which sequence, or
// which cached prefix, holds a slot. A slot has the states of all these layers of one sequence
// at one position. Owned by one model; its thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "arch/model_config.h"
#include "kernels/delta_rule.h"
#include "kernels/scan_shape.h"
#include "weights/tensor_storage.h"

namespace mlc_native {

class RecurrentStorage {
 public:
  RecurrentStorage() = default;  // no slots
  // Throws InvalidConfig if there is not enough memory. The initial contents are unspecified.
  RecurrentStorage(const ModelConfig& config, int64_t num_slots);

  static kernels::DeltaShape ShapeOf(const DeltaConfig& delta) {
    return {.key_heads = delta.num_key_heads,
            .value_heads = delta.num_value_heads,
            .key_dim = delta.key_dim,
            .value_dim = delta.value_dim,
            .conv_width = delta.conv_width,
            .decays_channels = delta.decays_channels()};
  }
  static kernels::DeltaShape ShapeOf(const MambaConfig& mamba) {
    return {.key_heads = mamba.num_groups,
            .value_heads = mamba.num_heads,
            .key_dim = mamba.state_dim,
            .value_dim = mamba.head_dim,
            .conv_width = mamba.conv_width};
  }
  static kernels::ScanShape ShapeOf(const ScanConfig& scan) {
    return {.channels = scan.channels, .state_dim = scan.state_dim, .conv_width = scan.conv_width};
  }
  // 0 for a decoder without such layers.
  static int64_t BytesPerSlot(const ModelConfig& config);

  int64_t num_slots() const { return num_slots_; }
  // The state of a layer that has one.
  float* state(int64_t slot, size_t layer) const {
    return reinterpret_cast<float*>(storage_.data() + slot * slot_bytes_) + layer_floats_[layer];
  }

 private:
  int64_t num_slots_ = 0;
  int64_t slot_bytes_ = 0;
  std::vector<int64_t> layer_floats_;  // where the state of each layer begins within a slot
  TensorStorage storage_;
};

}  // namespace mlc_native
