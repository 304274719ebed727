// Owner of a block of uninitialized memory for kernels: aligned to 64 bytes, or to 2 MiB and backed
// by huge pages where the system offers them once it is that large (streaming gigabytes of weights
// through 4 KiB pages costs TLB misses). Throws std::bad_alloc.
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
