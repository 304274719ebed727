// Devices that this machine has and that this installation can use. Pure but for the driver's
// answers and the environment, which are asked at each call; any thread.
//
// "cpu:0" is another name for "cpu".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "support/cuda_driver.h"

namespace mlc_native {

// The i of "cuda:i", 0 of "cuda"; nullopt for "auto" and "cpu". Throws InvalidConfig for another
// name.
std::optional<int> CudaIndex(const std::string& device);

// The library that runs models on GPUs: MLC_NATIVE_CUDA_LIB of the environment, else
// libmlc_native_cuda.so beside libmlc_native. Empty: there is none.
std::string CudaLibraryPath();

// "cpu"; and "cuda:i" of each GPU that is new enough, if there is a CUDA library.
std::vector<std::string> AvailableDevices();

// The GPU that "cuda[:i]" names, or the first that is new enough for "auto", library or not;
// nullopt for "cpu", and for "auto" when there is none. Throws InvalidConfig that says what is
// missing.
std::optional<CudaDevice> FindGpu(const std::string& device);

// "auto" (the best that is there), "cpu" or "cuda[:i]" to the name of a device that is there.
// With a model_lib that library knows which devices there are: "auto" stays, "cuda" becomes
// "cuda:0". Throws InvalidConfig that says what is missing.
std::string ResolveDevice(const std::string& device, const std::string& model_lib);

// The same with another CUDA library, or none (tests).
std::string ResolveDevice(const std::string& device, const std::string& model_lib,
                          const std::string& cuda_library);

}  // namespace mlc_native
