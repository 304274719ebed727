#include "models/cuda/device_kv.h"

#include <algorithm>

#include "kernels/cuda/key_choice.h"
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

int64_t NumIndices(const ModelConfig& config) {
  return std::ranges::count_if(config.layers, &LayerConfig::chooses_keys);
}

// Of a page of an index, whose keys have the type of the activations.
int64_t IndexPageBytes(const ModelConfig& config, kernels::KvFormat format) {
  if (!config.key_choice) return 0;
  const int64_t of_16_bits = KvElementBytes(kernels::KvFormat::kBFloat16);
  return kKvPageSize * config.key_choice->head_dim * std::max(KvElementBytes(format), of_16_bits);
}

int64_t Aligned(int64_t bytes) { return (bytes + kLayerAlign - 1) / kLayerAlign * kLayerAlign; }

}  // namespace

DeviceKv::DeviceKv(const ModelConfig& config, kernels::KvFormat format, DType dtype,
                   int64_t num_pages)
    : layers_(config.layers.size()), copies_(kMaxCopies * sizeof(PageCopy)) {
  const auto array_bytes = [&](const PageSize& size) {
    return Aligned(num_pages * size.Bytes(format));
  };
  int64_t all = NumIndices(config) * Aligned(num_pages * IndexPageBytes(config, format));
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
  if (config.key_choice) PlaceIndices(config, dtype, num_pages, data);
}

void DeviceKv::PlaceIndices(const ModelConfig& config, DType dtype, int64_t num_pages,
                            std::byte* data) {
  const KvPages first =
      kernels::cuda::IndexPages(dtype, config.key_choice->head_dim, num_pages, data);
  const int64_t bytes = Aligned(num_pages * first.head_bytes());
  alike_.push_back({.first = first, .num_layers = NumIndices(config), .layer_stride = bytes});
  for (const LayerConfig& layer : config.layers) {
    KvPages& index = indices_.emplace_back(first);
    index.k = data;
    if (layer.chooses_keys) data += bytes;
  }
}

int64_t DeviceKv::BytesPerToken(const ModelConfig& config, kernels::KvFormat format) {
  int64_t page = 0;
  for (const LayerConfig& layer : config.layers) {
    if (layer.has_own_kv()) page += PageSizeOf(config, layer).Bytes(format);
  }
  page *= NumArrays(config);
  return (page + NumIndices(config) * IndexPageBytes(config, format)) / kKvPageSize;
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
