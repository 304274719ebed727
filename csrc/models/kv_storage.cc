#include "models/kv_storage.h"

#include "support/check.h"

namespace mlc_native {

KvStorage::KvStorage(const ModelConfig& config, kernels::KvFormat format, int64_t num_pages)
    : num_pages_(num_pages) {
  const size_t bytes = kernels::AlignUp(
      kernels::KvLayerBytes(format, num_pages, config.num_kv_heads, config.head_dim));
  storage_ = TensorStorage(2 * bytes * config.layers.size(), "max_total_sequence_length");
  std::byte* data = storage_.data();
  for (size_t i = 0; i < config.layers.size(); ++i) {
    layers_.push_back({.format = format,
                       .kv_heads = config.num_kv_heads,
                       .head_dim = config.head_dim,
                       .num_pages = num_pages,
                       .k_pages = data,
                       .v_pages = data + bytes});
    data += 2 * bytes;
  }
}

int64_t KvStorage::BytesPerToken(const ModelConfig& config, kernels::KvFormat format) {
  const size_t page = kernels::KvLayerBytes(format, 1, config.num_kv_heads, config.head_dim);
  return 2 * static_cast<int64_t>(config.layers.size() * page) / kKvPageSize;
}

void KvStorage::CopyPages(std::span<const PageCopy> copies) {
  for (const PageCopy& copy : copies) {
    MLC_CHECK(copy.src_page != copy.dst_page) << "page " << copy.src_page;
    for (const kernels::KvPages& layer : layers_) {
      kernels::CopyPage(layer, copy.src_page, copy.dst_page);
    }
  }
}

}  // namespace mlc_native
