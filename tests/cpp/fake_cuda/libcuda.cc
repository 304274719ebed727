// A fake NVIDIA driver. FAKE_CUDA_GPUS lists the compute capability of each GPU ("90,75"; empty:
// none), and FAKE_CUDA_ERROR is the result of cuInit instead of 0.
//
// A program that opens libcuda.so.1 gets this library if it is loaded already, or if
// LD_LIBRARY_PATH finds it first.
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
