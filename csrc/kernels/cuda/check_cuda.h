// Turns the status codes of the CUDA runtime into exceptions, for files that include CUDA's
// headers.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "kernels/cuda/device_error.h"

namespace mlc_native::kernels::cuda {

// Throws OutOfDeviceMemory, DeviceError; `what` failed.
inline void CheckCuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error, which the next launch would report again
  const std::string message = std::string("CUDA: ") + what + ": " + cudaGetErrorString(status);
  if (status == cudaErrorMemoryAllocation) throw OutOfDeviceMemory(message);
  throw DeviceError(message);
}

}  // namespace mlc_native::kernels::cuda
