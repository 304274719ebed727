// What the NVIDIA driver says of this machine's GPUs. The driver is opened at run time
// (libcuda.so.1) and stays loaded; nothing links it. Asking starts the driver in this process,
// after which a fork of it cannot use a GPU any more. Any thread.
#pragma once

#include <string>
#include <vector>

namespace mlc_native {

struct CudaDevice {
  int index = 0;
  std::string name;
  int compute_capability = 0;  // 90 is 9.0
};

struct CudaDriver {
  std::vector<CudaDevice> devices;  // by index
  std::string error;                // why there are none
};

CudaDriver QueryCudaDriver();

}  // namespace mlc_native
