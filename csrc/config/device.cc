#include "config/device.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "support/companion.h"
#include "support/error.h"

namespace mlc_native {
namespace {

constexpr char kLibraryVariable[] = "MLC_NATIVE_CUDA_LIB";
constexpr char kLibraryName[] = "libmlc_native_cuda.so";
// Of the package mlc_native_cuda, relative to site-packages/mlc_native/lib.
constexpr char kPackagedLibrary[] = "../../mlc_native_cuda/lib/libmlc_native_cuda.so";
constexpr int kMinComputeCapability = 80;

// torch.device("cpu", 0) and DLPack devices print an index, and there is one CPU.
bool IsCpu(const std::string& device) { return device == "cpu" || device == "cpu:0"; }

bool IsUsable(const CudaDevice& gpu) { return gpu.compute_capability >= kMinComputeCapability; }

std::string DeviceName(int index) { return "cuda:" + std::to_string(index); }

std::string Version(int compute_capability) {
  return std::to_string(compute_capability / 10) + '.' + std::to_string(compute_capability % 10);
}

InvalidConfig Unavailable(const std::string& device, const std::string& why) {
  return InvalidConfig("device", "\"device\" " + device + " is not available: " + why);
}

CudaDevice RequireGpu(const CudaDriver& driver, int index) {
  const std::string name = DeviceName(index);
  if (driver.devices.empty()) throw Unavailable(name, driver.error);
  const auto count = static_cast<int>(driver.devices.size());
  if (index >= count) {
    throw Unavailable(name, count == 1 ? "there is 1 GPU, cuda:0"
                                       : "there are " + std::to_string(count) +
                                             " GPUs, cuda:0 to " + DeviceName(count - 1));
  }
  const CudaDevice& gpu = driver.devices[index];
  if (!IsUsable(gpu)) {
    throw Unavailable(name, gpu.name + " has compute capability " +
                                Version(gpu.compute_capability) + ", at least " +
                                Version(kMinComputeCapability) + " is needed");
  }
  return gpu;
}

}  // namespace

std::optional<int> CudaIndex(const std::string& device) {
  if (device == "auto" || IsCpu(device)) return std::nullopt;
  if (device == "cuda") return 0;
  const std::string prefix = "cuda:";
  int index = 0;
  const char* const end = device.data() + device.size();
  if (device.starts_with(prefix)) {
    const auto [stop, error] = std::from_chars(device.data() + prefix.size(), end, index);
    if (error == std::errc() && stop == end && index >= 0) return index;
  }
  throw InvalidConfig("device", OutOfRangeMessage("device", '"' + device + '"',
                                                  "\"auto\", \"cpu\", \"cuda\" or \"cuda:i\""));
}

std::string CudaLibraryPath() {
  // A named library must exist; opening it reports an error otherwise.
  if (const auto named = EnvironmentValue(kLibraryVariable)) return *named;
  for (const char* place : {kLibraryName, kPackagedLibrary}) {
    const std::string path = CompanionPath(place);
    if (std::filesystem::exists(path)) return path;
  }
  return "";
}

std::vector<std::string> AvailableDevices() {
  std::vector<std::string> names = {"cpu"};
  if (CudaLibraryPath().empty()) return names;
  for (const CudaDevice& gpu : QueryCudaDriver().devices) {
    if (IsUsable(gpu)) names.push_back(DeviceName(gpu.index));
  }
  return names;
}

std::optional<CudaDevice> FindGpu(const std::string& device) {
  const std::optional<int> index = CudaIndex(device);
  if (IsCpu(device)) return std::nullopt;
  const CudaDriver driver = QueryCudaDriver();
  if (index) return RequireGpu(driver, *index);
  const auto first = std::find_if(driver.devices.begin(), driver.devices.end(), IsUsable);
  if (first == driver.devices.end()) return std::nullopt;
  return *first;
}

std::string ResolveDevice(const std::string& device, const std::string& model_lib) {
  return ResolveDevice(device, model_lib, CudaLibraryPath());
}

std::string ResolveDevice(const std::string& device, const std::string& model_lib,
                          const std::string& cuda_library) {
  const std::optional<int> index = CudaIndex(device);
  if (!model_lib.empty() && !IsCpu(device)) return index ? DeviceName(*index) : device;
  if (device == "auto" && cuda_library.empty()) return "cpu";
  const std::optional<CudaDevice> gpu = FindGpu(device);
  if (!gpu) return "cpu";
  if (!cuda_library.empty()) return DeviceName(gpu->index);
  throw Unavailable(DeviceName(gpu->index),
                    std::string("this installation has no ") + kLibraryName +
                        ". Install it (pip install 'mlc_native[cuda]'), or nvcc (CUDA 12.8 or "
                        "later), with which the Python package builds it, or let " +
                        kLibraryVariable + " name one");
}

}  // namespace mlc_native
