// Parts that CUDA's ops share. They use no CUDA header: kernels/cuda/kernels.h needs none, and
// torch's current stream comes through a device-independent interface. The same sources, linked to
// the emulator of the tests, are therefore ops on CPU tensors (MLC_NATIVE_OPS_CUDA_KEY,
// MLC_NATIVE_OPS_NAMESPACE).
#pragma once

#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/runtime.h"
#include "torch_ops/arguments.h"
#include "torch_ops/library.h"

#ifndef MLC_NATIVE_OPS_CUDA_KEY
#define MLC_NATIVE_OPS_CUDA_KEY CUDA
#endif

namespace mlc_native::ops {

inline constexpr int64_t kCudaAlignment = 16;  // alignment of rows, in bytes
inline constexpr int64_t kCudaUnit = 8;        // rows are multiples of this many elements

kernels::cuda::Stream CurrentStream(int32_t device_index);  // torch's

// Calls launch(stream) with the device of x as the current device, and with its current stream. On
// the emulator it waits for the stream, since CPU tensors are read at once.
template <typename F>
void OnDevice(const Tensor& x, const F& launch) {
  if (x.is_cpu()) {
    const kernels::cuda::OwnedStream stream;
    launch(stream.get());
    return stream.Synchronize();
  }
  const int32_t index = x.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(index);
  kernels::cuda::UseDevice(index);  // torch has a CUDA runtime of its own
  launch(CurrentStream(index));
}

// Throws ValueError unless `size`, the elements of the argument's rows (or heads), is a multiple of
// `unit` and at most `most`.
void CheckRowSize(const char* name, int64_t size, int64_t most = INT64_MAX,
                  int64_t unit = kCudaUnit);

// Of packed weights [n, k] or [experts, n, k]: throws ValueError unless it is what pack_weight
// makes.
void CheckPacked(const char* name, const Tensor& packed, std::string_view format, int64_t k);
// Throws ValueError unless x can be multiplied with such a weight.
void CheckWeightType(const Tensor& x, std::string_view format);

// Returns x without a row stride.
inline Rows Dense(const Tensor& x) { return {torch::stable::contiguous(x), kCudaAlignment}; }

inline Tensor DeviceBytes(size_t bytes, const Tensor& like) {
  return Empty({static_cast<int64_t>(bytes)}, like, ScalarType::Byte);
}

// Copies items from the host to the device of `like`.
template <typename T>
Tensor Upload(const std::vector<T>& items, const Tensor& like) {
  static_assert(std::is_trivially_copyable_v<T>);
  const size_t bytes = items.size() * sizeof(T);
  const Tensor host = HostBytes(bytes);
  if (bytes > 0) std::memcpy(host.mutable_data_ptr(), items.data(), bytes);
  return torch::stable::to(host, like.device());
}

}  // namespace mlc_native::ops
