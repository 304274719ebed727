#include "models/cuda/device_kv.h"

#include <algorithm>

#include "support/check.h"

namespace mlc_native {
namespace {

constexpr int64_t kMaxCopies = 1024;  // at a time
constexpr int64_t kLayerAlign = 256;

int64_t PageBytes(const ModelConfig& config, kernels::KvFormat format) {
  return config.num_kv_heads * kernels::cuda::KvHeadBytes(format, config.head_dim);
}

// Layers with keys and values.
int64_t NumLayers(const ModelConfig& config) {
  return std::ranges::count(config.layers, false, &LayerConfig::is_recurrent);
}

// Keys and values; latents are keys alone.
int64_t NumArrays(const ModelConfig& config) { return config.latent ? 1 : 2; }

}  // namespace

DeviceKv::DeviceKv(const ModelConfig& config, kernels::KvFormat format, int64_t num_pages)
    : copies_(kMaxCopies * sizeof(PageCopy)) {
  const int64_t bytes =
      (num_pages * PageBytes(config, format) + kLayerAlign - 1) / kLayerAlign * kLayerAlign;
  layer_bytes_ = NumArrays(config) * bytes;
  memory_ = kernels::cuda::DeviceMemory(static_cast<size_t>(NumLayers(config) * layer_bytes_));
  num_layers_ = NumLayers(config);
  std::byte* data = memory_.data();
  for (const LayerConfig& layer : config.layers) {
    if (layer.is_recurrent) {
      layers_.push_back({});
      continue;
    }
    layers_.push_back({.format = format,
                       .kv_heads = config.num_kv_heads,
                       .head_dim = config.head_dim,
                       .latent_dim = config.latent ? config.latent->kv_rank : 0,
                       .num_pages = num_pages,
                       .k = data,
                       .v = config.latent ? nullptr : data + bytes});
    data += layer_bytes_;
  }
}

int64_t DeviceKv::BytesPerToken(const ModelConfig& config, kernels::KvFormat format) {
  return NumArrays(config) * NumLayers(config) * PageBytes(config, format) / kKvPageSize;
}

void DeviceKv::CopyPages(std::span<const PageCopy> copies, kernels::cuda::Stream stream) {
  const auto first = std::ranges::find_if(
      layers_, [](const kernels::cuda::KvPages& layer) { return layer.num_pages > 0; });
  if (first == layers_.end()) return;  // no layer has keys and values
  for (const PageCopy& copy : copies) {
    for (int32_t page : {copy.src_page, copy.dst_page}) {
      MLC_CHECK(page >= 0 && page < first->num_pages) << "page " << page;
    }
    MLC_CHECK(copy.src_page != copy.dst_page) << "page " << copy.src_page;
  }
  while (!copies.empty()) {
    const auto part = copies.first(std::min(copies.size(), static_cast<size_t>(kMaxCopies)));
    const auto size = static_cast<int64_t>(part.size());
    kernels::cuda::CopyPagesArgs args{.first = *first,
                                      .num_layers = num_layers_,
                                      .layer_stride = layer_bytes_,
                                      .num_copies = size};
    copies_.Begin();
    std::ranges::copy(part, copies_.Add(size, &args.copies).begin());
    copies_.Upload(stream);
    kernels::cuda::CopyPages(args, stream);
    copies = copies.subspan(part.size());
  }
}

}  // namespace mlc_native
