// Turns the status codes of the CUDA runtime into exceptions, for files that include CUDA's
// headers.
#pragma once

#include <driver_types.h>

namespace mlc_native::kernels::cuda {

// Throws OutOfDeviceMemory, DeviceError; `what` failed.
void CheckCuda(cudaError_t status, const char* what);

}  // namespace mlc_native::kernels::cuda
