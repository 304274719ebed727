// device_memory.h on a GPU.
#include "cuda/device_memory.h"

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace mlc_native::kernels::cuda {
namespace {

void Check(cudaError_t status) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(status));
  }
}

}  // namespace

void* AllocateDevice(size_t bytes) {
  void* data = nullptr;
  if (bytes > 0) Check(cudaMalloc(&data, bytes));
  return data;
}
void FreeDevice(void* data, size_t) { cudaFree(data); }
void CopyToDevice(void* to, const void* from, size_t bytes) {
  Check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
}
void CopyToHost(void* to, const void* from, size_t bytes) {
  Check(cudaDeviceSynchronize());
  Check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

}  // namespace mlc_native::kernels::cuda
