#include "models/kv_storage.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "support/check.h"

namespace mlc_native {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

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
  // The first ones are the first request's.
  pages_at_once_ = std::max<int64_t>(kHugePage / kernels::KvPageBytes(format, config.head_dim), 1);
  num_ready_ = pages_at_once_;
}

// What is provided ends before the memory does.
KvStorage& KvStorage::operator=(KvStorage&& other) noexcept {
  touch_.reset();
  storage_ = std::move(other.storage_);
  touch_ = std::move(other.touch_);
  layers_ = std::move(other.layers_);
  num_pages_ = other.num_pages_;
  pages_at_once_ = other.pages_at_once_;
  num_ready_ = other.num_ready_;
  return *this;
}

void KvStorage::ProvideNext() {
  if (num_ready_ >= num_pages_ || (touch_ && !touch_->is_done())) return;
  const int64_t count = std::min(pages_at_once_, num_pages_ - num_ready_);
  std::vector<MemoryRange> ranges;
  for (const kernels::KvPages& layer : layers_) {
    const int64_t page_bytes = kernels::KvPageBytes(layer.format, layer.head_dim);
    for (void* pages : {layer.k_pages, layer.v_pages}) {
      for (int64_t head = 0; head < layer.kv_heads; ++head) {
        const int64_t first = head * num_pages_ + num_ready_;
        ranges.push_back({static_cast<std::byte*>(pages) + first * page_bytes,
                          static_cast<size_t>(count * page_bytes)});
      }
    }
  }
  num_ready_ += count;
  touch_ = std::make_unique<MemoryTouch>(std::move(ranges));
}

void KvStorage::WaitForMemory() {
  if (touch_) touch_->Wait();
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
