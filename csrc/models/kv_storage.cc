#include "models/kv_storage.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "support/check.h"
#include "support/memory_nodes.h"

namespace mlc_native {
namespace {

// Less is not worth a thread.
constexpr int64_t kLeast = int64_t{8} << 20;

// Of the keys of a layer, or of its values; 0 of a layer without its own.
size_t LayerBytes(const ModelConfig& config, const LayerConfig& layer, kernels::KvFormat format,
                  int64_t num_pages) {
  if (!layer.has_own_kv()) return 0;
  return kernels::KvLayerBytes(format, num_pages, config.kv_heads_of(layer),
                               config.head_dim_of(layer));
}

// How many of keys and values it has. Of a layer with entries, values are the keys, too.
size_t NumParts(const LayerConfig& layer) { return layer.tokens_per_entry > 0 ? 1 : 2; }

// Of the keys of a layer's index.
size_t IndexBytes(const ModelConfig& config, const LayerConfig& layer, kernels::KvFormat format,
                  int64_t num_pages) {
  if (!layer.chooses_keys && !layer.chooses_entries) return 0;
  return kernels::KvLayerBytes(format, num_pages, 1, config.index().head_dim);
}

// Of the entries of a layer.
size_t EntryBytes(const ModelConfig& config, const LayerConfig& layer, kernels::KvFormat format,
                  int64_t num_pages) {
  if (layer.tokens_per_entry == 0) return 0;
  return kernels::KvLayerBytes(format, num_pages, 1, config.head_dim);
}

size_t RowBytes(const ModelConfig& config, const LayerConfig& layer, int64_t num_pages) {
  return static_cast<size_t>(kernels::TokenRowsBytes(num_pages, config.token_row_size(layer)));
}

// Of all of them in a block, each a whole number of cache lines.
size_t BlockBytes(const ModelConfig& config, const LayerConfig& layer, kernels::KvFormat format) {
  using kernels::AlignUp, kernels::kKvBlockPages;
  return NumParts(layer) * AlignUp(LayerBytes(config, layer, format, kKvBlockPages)) +
         AlignUp(IndexBytes(config, layer, format, kKvBlockPages)) +
         AlignUp(EntryBytes(config, layer, format, kKvBlockPages)) +
         AlignUp(RowBytes(config, layer, kKvBlockPages));
}

int64_t NumBlocks(int64_t num_pages) {
  return (num_pages + kernels::kKvBlockPages - 1) / kernels::kKvBlockPages;
}

}  // namespace

KvStorage::KvStorage(const ModelConfig& config, kernels::KvFormat format, int64_t num_pages,
                     int num_nodes)
    : num_pages_(num_pages) {
  using kernels::kKvBlockPages;
  const auto bytes_of = [&](const LayerConfig& layer) {
    return kernels::AlignUp(LayerBytes(config, layer, format, kKvBlockPages));
  };
  for (const LayerConfig& layer : config.layers) {
    block_bytes_ += static_cast<int64_t>(BlockBytes(config, layer, format));
  }
  storage_ = TensorStorage(static_cast<size_t>(NumBlocks(num_pages) * block_bytes_),
                           "max_total_sequence_length");
  std::byte* data = storage_.data();
  for (const LayerConfig& layer : config.layers) {
    if (layer.reads_other_kv()) {
      layers_.push_back(layers_.at(static_cast<size_t>(layer.kv_source)));
      continue;
    }
    if (!layer.has_own_kv()) {
      layers_.push_back({});
      continue;
    }
    const size_t bytes = bytes_of(layer);
    own_.push_back(layers_.size());
    layers_.push_back({.format = format,
                       .kv_heads = config.kv_heads_of(layer),
                       .head_dim = config.head_dim_of(layer),
                       .num_pages = num_pages,
                       .k_pages = NumParts(layer) == 1 ? nullptr : data,
                       .v_pages = NumParts(layer) == 1 ? data : data + bytes,
                       .block_bytes = block_bytes_});
    data += NumParts(layer) * bytes;
  }
  data = PlaceIndices(config, format, data);
  PlaceEntries(config, format, data);
  // Without the policy, memory is on the node that writes to it first, which should not be that of
  // one thread.
  const bool is_placed = num_nodes == 1 || SpreadOverNodes(storage_.data(), storage_.size());
  if (!is_placed || storage_.size() < kLeast) {
    num_ready_ = num_pages;
  } else {
    Provide(0);
  }
}

std::byte* KvStorage::PlaceIndices(const ModelConfig& config, kernels::KvFormat format,
                                   std::byte* data) {
  if (!config.key_choice && !config.compression) return data;
  for (const LayerConfig& layer : config.layers) {
    indices_.emplace_back();
    if (!layer.chooses_keys && !layer.chooses_entries) continue;
    indices_.back() = {.format = format,
                       .kv_heads = 1,
                       .head_dim = config.index().head_dim,
                       .num_pages = num_pages_,
                       .k_pages = data,
                       .block_bytes = block_bytes_};
    data += kernels::AlignUp(IndexBytes(config, layer, format, kernels::kKvBlockPages));
  }
  return data;
}

std::byte* KvStorage::PlaceEntries(const ModelConfig& config, kernels::KvFormat format,
                                   std::byte* data) {
  if (!config.compression) return data;
  for (const LayerConfig& layer : config.layers) {
    entries_.emplace_back();
    token_rows_.emplace_back();
    if (layer.tokens_per_entry == 0) continue;
    entries_.back() = {.format = format,
                       .kv_heads = 1,
                       .head_dim = config.head_dim,
                       .num_pages = num_pages_,
                       .v_pages = data,
                       .block_bytes = block_bytes_};
    data += kernels::AlignUp(EntryBytes(config, layer, format, kernels::kKvBlockPages));
    token_rows_.back() = {.data = reinterpret_cast<float*>(data),
                          .width = config.token_row_size(layer),
                          .num_pages = num_pages_,
                          .block_bytes = block_bytes_};
    data += kernels::AlignUp(RowBytes(config, layer, kernels::kKvBlockPages));
  }
  return data;
}

// What is provided ends before the memory does.
KvStorage& KvStorage::operator=(KvStorage&& other) noexcept {
  touch_.reset();
  storage_ = std::move(other.storage_);
  touch_ = std::move(other.touch_);
  layers_ = std::move(other.layers_);
  indices_ = std::move(other.indices_);
  entries_ = std::move(other.entries_);
  token_rows_ = std::move(other.token_rows_);
  own_ = std::move(other.own_);
  num_pages_ = other.num_pages_;
  num_ready_ = other.num_ready_;
  block_bytes_ = other.block_bytes_;
  return *this;
}

void KvStorage::Provide(int64_t page) {
  if (num_ready_ >= num_pages_ || (touch_ && !touch_->is_done())) return;
  const int64_t begin = num_ready_ / kernels::kKvBlockPages;
  const int64_t end = std::min(std::max(page / kernels::kKvBlockPages + 2,
                                        begin + std::max<int64_t>(kLeast / block_bytes_, 1)),
                               NumBlocks(num_pages_));
  num_ready_ = end * kernels::kKvBlockPages;
  touch_ = std::make_unique<MemoryTouch>(std::vector{MemoryRange{
      storage_.data() + begin * block_bytes_, static_cast<size_t>((end - begin) * block_bytes_)}});
}

void KvStorage::WaitForMemory() {
  if (touch_) touch_->Wait();
}

int64_t KvStorage::BytesPerToken(const ModelConfig& config, kernels::KvFormat format) {
  size_t page = 0;
  for (const LayerConfig& layer : config.layers) {
    page += NumParts(layer) * LayerBytes(config, layer, format, 1) +
            IndexBytes(config, layer, format, 1) + EntryBytes(config, layer, format, 1) +
            RowBytes(config, layer, 1);
  }
  return static_cast<int64_t>(page) / kKvPageSize;
}

void KvStorage::CopyPages(std::span<const PageCopy> copies) {
  for (const PageCopy& copy : copies) {
    MLC_CHECK(copy.src_page != copy.dst_page) << "page " << copy.src_page;
    for (const size_t layer : own_) {
      kernels::CopyPage(layers_[layer], copy.src_page, copy.dst_page);
    }
    for (const kernels::KvPages& index : indices_) {
      if (index.k_pages != nullptr) kernels::CopyPage(index, copy.src_page, copy.dst_page);
    }
    for (const kernels::KvPages& entries : entries_) {
      if (entries.v_pages != nullptr) kernels::CopyPage(entries, copy.src_page, copy.dst_page);
    }
    for (const kernels::TokenRows& rows : token_rows_) {
      if (rows.data != nullptr) kernels::CopyPage(rows, copy.src_page, copy.dst_page);
    }
  }
}

}  // namespace mlc_native
