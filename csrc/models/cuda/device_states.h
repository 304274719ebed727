// DeviceStates is a StateMemory on a CUDA device, DeviceTokens a TokenMemory. Engine's thread only.
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

class DeviceTokens final : public TokenMemory {
 public:
  // As DeviceStates. All places are 0 first.
  DeviceTokens(ModelDevice& device, kernels::cuda::Stream stream,
               kernels::cuda::DeviceMemory memory, int32_t num_places);

  void Read(int32_t first_place, std::span<int32_t> values) const override;
  void Write(int32_t first_place, std::span<const int32_t> values) override;

 private:
  ModelDevice& device_;
  const kernels::cuda::Stream stream_;
  const kernels::cuda::DeviceMemory memory_;
};

}  // namespace mlc_native
