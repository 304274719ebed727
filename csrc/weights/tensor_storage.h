// TensorStorage is the memory of weights, KV pages and workspaces: an AlignedBuffer whose failure
// is a typed error. It is uninitialized, aligned for kernels, and on huge pages if it is large.
// Owned by its creator.
#pragma once

#include <cstddef>
#include <string>

#include "support/aligned_buffer.h"

namespace mlc_native {

class TensorStorage {
 public:
  TensorStorage() = default;  // empty
  // `what` names the memory in the error: InvalidConfig if the system cannot provide it.
  TensorStorage(size_t bytes, const std::string& what);

  std::byte* data() const { return static_cast<std::byte*>(buffer_.data()); }
  size_t size() const { return buffer_.size(); }

 private:
  AlignedBuffer buffer_;
};

}  // namespace mlc_native
