// DeviceStates is a StateMemory on a CUDA device. Engine's thread only.
#pragma once

#include <span>

#include "kernels/cuda/runtime.h"
#include "mlc_native/model.h"
#include "models/cuda/model_device.h"

namespace mlc_native {

class DeviceStates final : public StateMemory {
 public:
  // `device`, which is current, and `stream` outlive the memory.
  DeviceStates(ModelDevice& device, kernels::cuda::Stream stream,
               kernels::cuda::DeviceMemory memory, int64_t num_rows, int64_t width);

  void Read(int64_t first_row, std::span<float> rows) const override;
  void Write(int64_t first_row, std::span<const float> rows) override;

 private:
  ModelDevice& device_;
  const kernels::cuda::Stream stream_;
  const kernels::cuda::DeviceMemory memory_;
};

}  // namespace mlc_native
