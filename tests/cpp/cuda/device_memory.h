// Memory that kernels work on, for tests: of a GPU, or of the emulator (emulator/device_memory.cc),
// where each piece ends at a page that may not be touched. Starts filled with poison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cuda/kernels.h"

namespace mlc_native::kernels::cuda {

void* AllocateDevice(size_t bytes);
void FreeDevice(void* data, size_t bytes);
void CopyToDevice(void* to, const void* from, size_t bytes);
void CopyToHost(void* to, const void* from, size_t bytes);  // waits for kernels on stream 0

// An array of `size` items.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t size) : size_(size), data_(AllocateDevice(bytes())) {
    Upload(std::vector<T>(size, Poison()));
  }
  explicit DeviceArray(const std::vector<T>& items)
      : size_(items.size()), data_(AllocateDevice(bytes())) {
    Upload(items);
  }
  ~DeviceArray() { FreeDevice(data_, bytes()); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }
  std::vector<T> Download() const {
    std::vector<T> items(size_);
    CopyToHost(items.data(), data_, bytes());
    return items;
  }
  void Upload(const std::vector<T>& items) { CopyToDevice(data_, items.data(), bytes()); }

 private:
  static T Poison() {
    T poison;
    std::memset(static_cast<void*>(&poison), 0xff, sizeof poison);
    return poison;
  }

  size_t size_;
  void* data_;
};

}  // namespace mlc_native::kernels::cuda
