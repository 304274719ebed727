#include "models/cuda/device_kv.h"

#include <algorithm>

#include "support/check.h"

namespace mlc_native {

using kernels::cuda::CopyPagesArgs;
using kernels::cuda::KvPages;

namespace {

constexpr int64_t kMaxCopies = 1024;  // at a time
constexpr int64_t kLayerAlign = 256;

// Keys and values; latents are keys alone.
int64_t NumArrays(const ModelConfig& config) { return config.latent ? 1 : 2; }

// Of the pages of a layer that has keys and values of its own.
struct PageSize {
  int64_t kv_heads = 0;
  int64_t head_dim = 0;

  int64_t Bytes(kernels::KvFormat format) const {
    return kv_heads * kernels::cuda::KvHeadBytes(format, head_dim);
  }
  bool operator==(const PageSize&) const = default;
};

PageSize PageSizeOf(const ModelConfig& config, const LayerConfig& layer) {
  return {config.kv_heads_of(layer), config.head_dim_of(layer)};
}

// Each once.
std::vector<PageSize> PageSizes(const ModelConfig& config) {
  std::vector<PageSize> sizes;
  for (const LayerConfig& layer : config.layers) {
    const PageSize size = PageSizeOf(config, layer);
    if (layer.has_own_kv() && std::ranges::count(sizes, size) == 0) sizes.push_back(size);
  }
  return sizes;
}

}  // namespace

DeviceKv::DeviceKv(const ModelConfig& config, kernels::KvFormat format, int64_t num_pages)
    : layers_(config.layers.size()), copies_(kMaxCopies * sizeof(PageCopy)) {
  const auto array_bytes = [&](const PageSize& size) {
    return (num_pages * size.Bytes(format) + kLayerAlign - 1) / kLayerAlign * kLayerAlign;
  };
  int64_t all = 0;
  for (const LayerConfig& layer : config.layers) {
    if (layer.has_own_kv()) all += NumArrays(config) * array_bytes(PageSizeOf(config, layer));
  }
  memory_ = kernels::cuda::DeviceMemory(static_cast<size_t>(all));
  std::byte* data = memory_.data();
  for (const PageSize& size : PageSizes(config)) {
    const int64_t bytes = array_bytes(size);
    const KvPages first{.format = format,
                        .kv_heads = size.kv_heads,
                        .head_dim = size.head_dim,
                        .latent_dim = config.latent ? config.latent->kv_rank : 0,
                        .num_pages = num_pages,
                        .k = data,
                        .v = config.latent ? nullptr : data + bytes};
    CopyPagesArgs& alike = alike_.emplace_back(
        CopyPagesArgs{.first = first, .layer_stride = NumArrays(config) * bytes});
    for (size_t i = 0; i < layers_.size(); ++i) {
      const LayerConfig& layer = config.layers[i];
      if (!layer.has_own_kv() || PageSizeOf(config, layer) != size) continue;
      layers_[i] = first;
      layers_[i].k = data;
      if (!config.latent) layers_[i].v = data + bytes;
      data += alike.layer_stride;
      ++alike.num_layers;
    }
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    if (layer.reads_other_kv()) layers_[i] = layers_[static_cast<size_t>(layer.kv_source)];
  }
}

int64_t DeviceKv::BytesPerToken(const ModelConfig& config, kernels::KvFormat format) {
  int64_t page = 0;
  for (const LayerConfig& layer : config.layers) {
    if (layer.has_own_kv()) page += PageSizeOf(config, layer).Bytes(format);
  }
  return NumArrays(config) * page / kKvPageSize;
}

void DeviceKv::CopyPages(std::span<const PageCopy> copies, kernels::cuda::Stream stream) {
  if (alike_.empty()) return;  // no layer has keys and values
  for (const PageCopy& copy : copies) {
    for (int32_t page : {copy.src_page, copy.dst_page}) {
      MLC_CHECK(page >= 0 && page < alike_.front().first.num_pages) << "page " << page;
    }
    MLC_CHECK(copy.src_page != copy.dst_page) << "page " << copy.src_page;
  }
  while (!copies.empty()) {
    const auto part = copies.first(std::min(copies.size(), static_cast<size_t>(kMaxCopies)));
    const auto size = static_cast<int64_t>(part.size());
    const PageCopy* on_device = nullptr;
    copies_.Begin();
    std::ranges::copy(part, copies_.Add(size, &on_device).begin());
    copies_.Upload(stream);
    for (CopyPagesArgs args : alike_) {
      args.copies = on_device;
      args.num_copies = size;
      kernels::cuda::CopyPages(args, stream);
    }
    copies = copies.subspan(part.size());
  }
}

}  // namespace mlc_native
