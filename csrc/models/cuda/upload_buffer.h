// UploadBuffer is device memory at a fixed address that the host fills for every step, through
// pinned memory, while earlier contents are still being copied. Engine's thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/runtime.h"

namespace mlc_native {

class UploadBuffer {
 public:
  explicit UploadBuffer(size_t bytes);

  static constexpr size_t kAlign = 16;  // alignment of arrays
  static constexpr size_t ArrayBytes(int64_t items, size_t item_bytes) {
    return (static_cast<size_t>(items) * item_bytes + kAlign - 1) / kAlign * kAlign;
  }

  size_t free() const { return device_.size() - used_; }
  // Starts new contents. Waits until the contents before the last ones have been copied.
  void Begin();
  // Returns the next array: its memory on the host, which the caller fills, and its device address.
  template <typename T>
  std::span<T> Add(int64_t size, const T** device) {
    const size_t at = Reserve(ArrayBytes(size, sizeof(T)));
    *device = reinterpret_cast<const T*>(device_.data() + at);
    return {reinterpret_cast<T*>(hosts_[current_].memory.data() + at), static_cast<size_t>(size)};
  }
  void Upload(kernels::cuda::Stream stream);

 private:
  struct Host {
    kernels::cuda::PinnedMemory memory;
    kernels::cuda::Event copied;
  };

  size_t Reserve(size_t bytes);

  std::array<Host, 2> hosts_;
  kernels::cuda::DeviceMemory device_;
  size_t current_ = 0;
  size_t used_ = 0;
};

}  // namespace mlc_native
