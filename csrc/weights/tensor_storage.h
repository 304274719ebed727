// Owner of the memory of weights, KV pages and workspaces. Uninitialized, aligned for kernels; big
// ones on huge pages where the system offers them (streaming weights through 4 KiB pages costs TLB
// misses).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace mlc_native {

class TensorStorage {
 public:
  TensorStorage() = default;  // empty
  // `what` names the memory in the error: InvalidConfig when the system does not have it.
  TensorStorage(size_t bytes, const std::string& what);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::shared_ptr<std::byte> memory_;
  std::byte* data_ = nullptr;  // the first aligned byte of it
  size_t size_ = 0;
};

// From libtorch's allocator (torch_memory.cc) or, in builds without libtorch, from the system's
// (no_torch.cc). Throws std::exception.
std::shared_ptr<std::byte> AllocateBytes(size_t bytes);

}  // namespace mlc_native
