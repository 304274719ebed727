// Owner of the memory of weights, KV pages and workspaces: an at::Tensor of bytes behind an opaque
// type, so that one file sees libtorch's headers. Uninitialized, aligned for kernels; big ones on
// huge pages where the system offers them (streaming weights through 4 KiB pages costs TLB misses).
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
  struct Tensor;
  std::shared_ptr<const Tensor> tensor_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace mlc_native
