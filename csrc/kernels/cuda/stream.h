// Where kernels are launched. Values; any thread. runtime.h has the owner of a stream.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace mlc_native::kernels::cuda {

// How the kernels of a stream follow one another.
enum class LaunchOrder : uint8_t {
  kOneByOne,
  // A kernel may begin before the kernel in front of it has ended (device.cuh says how), where the
  // GPU and the driver know such launches and MLC_NATIVE_CUDA_DEPENDENT_LAUNCH is not 0. Requires:
  // no kernel writes the weights that kernels of this stream read.
  kDependent
};

// Where work is put: a cudaStream_t (null: the default stream of the device), with what launches on
// it need to know. Kernels follow one another one by one unless an OwnedStream says otherwise.
class Stream {
 public:
  Stream() = default;
  Stream(CUstream_st* handle, int dependent_capability = 0)  // NOLINT: a cudaStream_t is a stream
      : handle_(handle), dependent_capability_(dependent_capability) {}

  CUstream_st* handle() const { return handle_; }
  // The compute capability of the device if launches are dependent, else 0.
  int dependent_capability() const { return dependent_capability_; }

 private:
  CUstream_st* handle_ = nullptr;
  int dependent_capability_ = 0;
};

}  // namespace mlc_native::kernels::cuda
