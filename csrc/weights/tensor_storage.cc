#include "weights/tensor_storage.h"

#include <new>

#include "support/error.h"

namespace mlc_native {

TensorStorage::TensorStorage(size_t bytes, const std::string& what) {
  try {
    buffer_ = AlignedBuffer(bytes);
  } catch (const std::bad_alloc&) {
    throw InvalidConfig(what, what + " needs " + std::to_string(bytes) +
                                  " bytes of memory, which the system does not have");
  }
}

}  // namespace mlc_native
