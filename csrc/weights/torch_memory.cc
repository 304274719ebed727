// The one file that sees libtorch's headers.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "weights/tensor_storage.h"

namespace mlc_native {

std::shared_ptr<std::byte> AllocateBytes(size_t bytes) {
  const auto tensor =
      std::make_shared<const at::Tensor>(at::empty({static_cast<int64_t>(bytes)}, at::kByte));
  return {tensor, reinterpret_cast<std::byte*>(tensor->data_ptr<uint8_t>())};
}

}  // namespace mlc_native
