// AlignedBuffer owns a block of uninitialized memory for kernels. It is aligned to 64 bytes; from
// 2 MiB on it is aligned to 2 MiB and uses huge pages if the system offers them, because streaming
// gigabytes of weights through 4 KiB pages costs TLB misses. Throws std::bad_alloc.
#pragma once

#include <cstddef>
#include <memory>

namespace mlc_native {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes);

  void* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<void, Free> data_;
  size_t size_ = 0;
};

}  // namespace mlc_native
