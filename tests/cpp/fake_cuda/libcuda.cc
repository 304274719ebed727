// A stand-in for the NVIDIA driver. FAKE_CUDA_GPUS has the compute capability of each GPU that it
// claims ("90,75"; empty: none), FAKE_CUDA_ERROR what cuInit returns instead of 0.
//
// Whoever asks for libcuda.so.1 gets it once it is loaded, or found through LD_LIBRARY_PATH.
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::vector<int> Gpus() {
  const char* value = std::getenv("FAKE_CUDA_GPUS");
  std::vector<int> gpus;
  std::istringstream list(value != nullptr ? value : "");
  for (std::string gpu; std::getline(list, gpu, ',');) gpus.push_back(std::stoi(gpu));
  return gpus;
}

}  // namespace

extern "C" {

int cuInit(unsigned) {
  const char* error = std::getenv("FAKE_CUDA_ERROR");
  return error != nullptr ? std::atoi(error) : 0;
}

int cuGetErrorString(int error, const char** text) {
  *text = "system not yet initialized";
  return error == 0;
}

int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(Gpus().size());
  return 0;
}

int cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}

int cuDeviceGetName(char* name, int size, int device) {
  std::snprintf(name, size, "Fake GPU %d", device);
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  constexpr int kMajor = 75;
  const int capability = Gpus().at(device);
  *value = attribute == kMajor ? capability / 10 : capability % 10;
  return 0;
}
}
