// What torch_memory.cc does, in builds without libtorch.
#include <cstdlib>
#include <new>

#include "weights/tensor_storage.h"

namespace mlc_native {

std::shared_ptr<std::byte> AllocateBytes(size_t bytes) {
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return {static_cast<std::byte*>(memory), std::free};
}

}  // namespace mlc_native
