#include "models/cuda/device_states.h"

#include <utility>

namespace mlc_native {

DeviceStates::DeviceStates(ModelDevice& device, kernels::cuda::Stream stream,
                           kernels::cuda::DeviceMemory memory, int64_t num_rows, int64_t width)
    : StateMemory(reinterpret_cast<float*>(memory.data()), num_rows, width),
      device_(device),
      stream_(stream),
      memory_(std::move(memory)) {}

// The memory of the host is not pinned, so that both wait.
void DeviceStates::Read(int64_t first_row, std::span<float> rows) const {
  device_.Run([&] {
    kernels::cuda::CopyToHost(rows.data(), data() + first_row * width(), rows.size_bytes(),
                              stream_);
  });
}

void DeviceStates::Write(int64_t first_row, std::span<const float> rows) {
  device_.Run([&] {
    kernels::cuda::CopyToDevice(data() + first_row * width(), rows.data(), rows.size_bytes(),
                                stream_);
  });
}

DeviceTokens::DeviceTokens(ModelDevice& device, kernels::cuda::Stream stream,
                           kernels::cuda::DeviceMemory memory, int32_t num_places)
    : TokenMemory(reinterpret_cast<int32_t*>(memory.data()), num_places),
      device_(device),
      stream_(stream),
      memory_(std::move(memory)) {
  kernels::cuda::SetToZero(memory_.data(), memory_.size(), stream);
}

void DeviceTokens::Read(int32_t first_place, std::span<int32_t> values) const {
  device_.Run([&] {
    kernels::cuda::CopyToHost(values.data(), data() + first_place, values.size_bytes(), stream_);
  });
}

void DeviceTokens::Write(int32_t first_place, std::span<const int32_t> values) {
  device_.Run([&] {
    kernels::cuda::CopyToDevice(data() + first_place, values.data(), values.size_bytes(), stream_);
  });
}

}  // namespace mlc_native
