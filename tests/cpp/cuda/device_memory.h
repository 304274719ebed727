// Arrays for kernels under test, initially filled with poison. All operations use stream 0. One
// thread.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/cuda/runtime.h"

namespace mlc_native::kernels::cuda {

// An array of `size` items.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t size) : DeviceArray(std::vector<T>(size, Poison())) {}
  explicit DeviceArray(const std::vector<T>& items)
      : size_(items.size()), memory_(size_ * sizeof(T)) {
    Upload(items);
  }

  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  size_t size() const { return size_; }
  size_t bytes() const { return memory_.size(); }
  // Both wait for the copy, so that other streams find what has been uploaded.
  std::vector<T> Download() const {
    std::vector<T> items(size_);
    CopyToHost(items.data(), memory_.data(), bytes(), nullptr);
    return items;
  }
  void Upload(const std::vector<T>& items) {
    CopyToDevice(memory_.data(), items.data(), bytes(), nullptr);
    Event copied;
    copied.Record(nullptr);
    copied.Synchronize();
  }

 private:
  static T Poison() {
    T poison;
    std::memset(static_cast<void*>(&poison), 0xff, sizeof poison);
    return poison;
  }

  size_t size_;
  DeviceMemory memory_;
};

}  // namespace mlc_native::kernels::cuda
