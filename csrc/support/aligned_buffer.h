// AlignedBuffer owns a block of uninitialized memory for kernels. It is aligned to 64 bytes; from
// 2 MiB on it is aligned to 2 MiB and uses huge pages if the system offers them, because streaming
// gigabytes of weights through 4 KiB pages costs TLB misses. Throws std::bad_alloc.
//
// A block of kMapped bytes or more is a mapping of its own, which goes back to the system when it
// is freed. As parts of the heap, the blocks of one model after the other would leave holes between
// what other threads keep, and holes with the mark of huge pages are filled as a whole.
#pragma once

#include <cstddef>
#include <memory>

namespace mlc_native {

class AlignedBuffer {
 public:
  static constexpr size_t kMapped = size_t{128} << 10;

  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes);

  void* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  class Free {
   public:
    Free() : mapped_(0) {}
    explicit Free(size_t mapped) : mapped_(mapped) {}
    void operator()(void* p) const;

   private:
    size_t mapped_;  // bytes of the mapping; 0 for a part of the heap
  };
  std::unique_ptr<void, Free> data_;
  size_t size_ = 0;
};

}  // namespace mlc_native
