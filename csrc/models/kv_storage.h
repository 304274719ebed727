// KvStorage is the memory of the KV pages of all layers; kv/ decides which sequence holds a page.
// Owned by one model; its thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "arch/model_config.h"
#include "kernels/kernels.h"
#include "mlc_native/detail/page.h"
#include "weights/tensor_storage.h"

namespace mlc_native {

class KvStorage {
 public:
  KvStorage() = default;  // no pages
  // Throws InvalidConfig if there is not enough memory. The initial contents are unspecified.
  KvStorage(const ModelConfig& config, kernels::KvFormat format, int64_t num_pages);

  static int64_t BytesPerToken(const ModelConfig& config, kernels::KvFormat format);

  int64_t num_pages() const { return num_pages_; }
  const kernels::KvPages& layer(size_t i) const { return layers_[i]; }
  void CopyPages(std::span<const PageCopy> copies);

 private:
  int64_t num_pages_ = 0;
  std::vector<kernels::KvPages> layers_;
  TensorStorage storage_;
};

}  // namespace mlc_native
