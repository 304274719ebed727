#include "support/cuda_driver.h"

#include <dlfcn.h>

#include <array>
#include <stdexcept>

namespace mlc_native {
namespace {

// Declarations of cuda.h, so that the build does not need it. CUresult and CUdevice are ints; 0 is
// success.
constexpr int kNoDevice = 100;
constexpr int kComputeCapabilityMajor = 75;
constexpr int kComputeCapabilityMinor = 76;

class Driver {
 public:
  Driver() : library_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {
    if (library_ == nullptr) {
      throw std::runtime_error("there is no NVIDIA driver (libcuda.so.1 cannot be opened)");
    }
  }
  ~Driver() { dlclose(library_); }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  template <typename... Args>
  void Call(const char* name, Args... args) const {
    const int result = Find<int(Args...)>(name)(args...);
    if (result == kNoDevice) throw std::runtime_error("the NVIDIA driver finds no GPU");
    if (result != 0) throw std::runtime_error(std::string(name) + ": " + Message(result));
  }

 private:
  template <typename Function>
  Function* Find(const char* name) const {
    void* symbol = dlsym(library_, name);
    if (symbol == nullptr) {
      throw std::runtime_error(std::string("the NVIDIA driver lacks ") + name);
    }
    return reinterpret_cast<Function*>(symbol);
  }

  std::string Message(int result) const {
    const char* text = nullptr;
    Find<int(int, const char**)>("cuGetErrorString")(result, &text);
    return text != nullptr ? text : "error " + std::to_string(result);
  }

  void* library_;
};

CudaDevice Describe(const Driver& driver, int index) {
  int handle = 0;
  driver.Call("cuDeviceGet", &handle, index);
  std::array<char, 256> name{};
  driver.Call("cuDeviceGetName", name.data(), static_cast<int>(name.size()) - 1, handle);
  int major = 0;
  int minor = 0;
  driver.Call("cuDeviceGetAttribute", &major, kComputeCapabilityMajor, handle);
  driver.Call("cuDeviceGetAttribute", &minor, kComputeCapabilityMinor, handle);
  return {index, name.data(), major * 10 + minor};
}

}  // namespace

CudaDriver QueryCudaDriver() {
  CudaDriver result;
  try {
    const Driver driver;
    driver.Call("cuInit", 0U);
    int count = 0;
    driver.Call("cuDeviceGetCount", &count);
    for (int i = 0; i < count; ++i) result.devices.push_back(Describe(driver, i));
    if (count == 0) result.error = "the NVIDIA driver finds no GPU";
  } catch (const std::runtime_error& error) {
    result = {.devices = {}, .error = error.what()};
  }
  return result;
}

}  // namespace mlc_native
