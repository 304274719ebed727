// DeviceRecurrent is the memory of the states of layers that have these in place of keys and values
// on a device: those with linear attention, a short convolution or Mamba. kv/ decides who holds a
// slot. Engine's thread only.
#pragma once

#include <vector>

#include "arch/model_config.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/states.h"
#include "kernels/scan_shape.h"

namespace mlc_native {

inline kernels::DeltaShape DeltaShapeOf(const DeltaConfig& delta) {
  return {.key_heads = delta.num_key_heads,
          .value_heads = delta.num_value_heads,
          .key_dim = delta.key_dim,
          .value_dim = delta.value_dim,
          .conv_width = delta.conv_width,
          .decays_channels = delta.decays_channels()};
}
inline kernels::DeltaShape DeltaShapeOf(const MambaConfig& mamba) {
  return {.key_heads = mamba.num_groups,
          .value_heads = mamba.num_heads,
          .key_dim = mamba.state_dim,
          .value_dim = mamba.head_dim,
          .conv_width = mamba.conv_width};
}
inline kernels::ScanShape ScanShapeOf(const ScanConfig& scan) {
  return {.channels = scan.channels, .state_dim = scan.state_dim, .conv_width = scan.conv_width};
}

// A view: of slot 0, where the state of each layer begins and how far the next slot is.
struct CudaRecurrentStates {
  float* data = nullptr;  // null: there are no slots
  int64_t slot_floats = 0;
  std::vector<int64_t> layer_floats;
};

class DeviceRecurrent {
 public:
  DeviceRecurrent() = default;  // no slots
  // Allocates on the current device. Throws OutOfDeviceMemory. The initial contents are
  // unspecified.
  DeviceRecurrent(const ModelConfig& config, int64_t num_slots);

  // 0 for a decoder without such layers.
  static int64_t BytesPerSlot(const ModelConfig& config);

  const CudaRecurrentStates& view() const { return view_; }

 private:
  CudaRecurrentStates view_;
  kernels::cuda::DeviceMemory memory_;
};

}  // namespace mlc_native
