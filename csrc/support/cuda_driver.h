// The GPUs of this machine according to the NVIDIA driver. The driver (libcuda.so.1) is opened at
// run time and stays loaded; nothing links it. The query initializes the driver in this process;
// forks of the process cannot use a GPU afterwards. Any thread.
#pragma once

#include <string>
#include <vector>

namespace mlc_native {

struct CudaDevice {
  int index = 0;
  std::string name;
  int compute_capability = 0;  // 90 means 9.0
};

struct CudaDriver {
  std::vector<CudaDevice> devices;  // by index
  std::string error;                // why there are none
};

CudaDriver QueryCudaDriver();

}  // namespace mlc_native
