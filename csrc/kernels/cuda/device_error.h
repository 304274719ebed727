// What a CUDA device or its runtime reports as failed. A lost device fails every later call.
#pragma once

#include <stdexcept>

namespace mlc_native::kernels::cuda {

class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An allocation that does not fit; nothing else has happened.
class OutOfDeviceMemory : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

}  // namespace mlc_native::kernels::cuda
