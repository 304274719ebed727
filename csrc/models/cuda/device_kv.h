// DeviceKv is the memory of the KV pages of all layers on a device, in one block; kv/ decides which
// sequence holds a page. Engine's thread only.
#pragma once

#include <span>
#include <vector>

#include "arch/model_config.h"
#include "kernels/cuda/kv_pages.h"
#include "kernels/cuda/runtime.h"
#include "models/cuda/upload_buffer.h"

namespace mlc_native {

class DeviceKv {
 public:
  // Allocates on the current device. Throws OutOfDeviceMemory. The initial contents are
  // unspecified.
  DeviceKv(const ModelConfig& config, kernels::KvFormat format, DType dtype, int64_t num_pages);

  static int64_t BytesPerToken(const ModelConfig& config, kernels::KvFormat format);

  // Without pages where a layer has no keys and values; those of a layer that reads another's are
  // the other's.
  const std::vector<kernels::cuda::KvPages>& layers() const { return layers_; }
  // The keys of the index of each layer that chooses keys; empty where none does.
  const std::vector<kernels::cuda::KvPages>& indices() const { return indices_; }
  void CopyPages(std::span<const PageCopy> copies, kernels::cuda::Stream stream);

 private:
  void PlaceIndices(const ModelConfig& config, DType dtype, int64_t num_pages, std::byte* data);

  std::vector<kernels::cuda::KvPages> layers_;
  std::vector<kernels::cuda::KvPages> indices_;
  // Layers whose pages are of one size lie one behind the other: those of each size, without
  // copies.
  std::vector<kernels::cuda::CopyPagesArgs> alike_;
  kernels::cuda::DeviceMemory memory_;
  UploadBuffer copies_;
};

}  // namespace mlc_native
