// The devices of this machine that this installation can use. Each call queries the driver and the
// environment. Any thread.
//
// "cpu:0" is another name for "cpu".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mlc_native/detail/export.h"
#include "support/cuda_driver.h"

namespace mlc_native {

// Returns i for "cuda:i", 0 for "cuda", and nullopt for "auto" and "cpu". Throws InvalidConfig for
// other names.
MLC_NATIVE_PRIVATE_API std::optional<int> CudaIndex(const std::string& device);

// Returns the library that runs models on GPUs: the one that MLC_NATIVE_CUDA_LIB names, else
// libmlc_native_cuda.so in the folder of libmlc_native, else that of the package mlc_native_cuda
// beside the package of libmlc_native. Empty if there is none.
MLC_NATIVE_PRIVATE_API std::string CudaLibraryPath();

// Returns "cpu" and, if there is a CUDA library, "cuda:i" for each GPU that is new enough.
MLC_NATIVE_PRIVATE_API std::vector<std::string> AvailableDevices();

// Returns the GPU that "cuda[:i]" names, or for "auto" the first one that is new enough, with or
// without a library. Returns nullopt for "cpu", and for "auto" if there is no such GPU. Throws
// InvalidConfig, which names what is missing.
MLC_NATIVE_PRIVATE_API std::optional<CudaDevice> FindGpu(const std::string& device);

// Resolves "auto" (the best device), "cpu" or "cuda[:i]" to the name of an existing device. A
// model_lib determines its own devices, so with one "auto" stays and "cuda" becomes "cuda:0".
// Throws InvalidConfig, which names what is missing.
MLC_NATIVE_PRIVATE_API std::string ResolveDevice(const std::string& device,
                                                 const std::string& model_lib);

// The same with another CUDA library, or none, for tests.
MLC_NATIVE_PRIVATE_API std::string ResolveDevice(const std::string& device,
                                                 const std::string& model_lib,
                                                 const std::string& cuda_library);

}  // namespace mlc_native
