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

}  // namespace mlc_native
