// Devices that this build and this machine can run on. Pure; any thread.
#pragma once

#include <string>
#include <vector>

namespace mlc_native {

// "cpu"; GPUs join when their kernels do.
std::vector<std::string> AvailableDevices();

// "auto" (the best that is there), "cpu" or "cuda[:i]" to the name of a device that is there.
// Throws InvalidConfig naming what is.
std::string ResolveDevice(const std::string& device);

}  // namespace mlc_native
