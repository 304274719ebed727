#include "models/cuda/device_recurrent.h"

#include <algorithm>

#include "kernels/cuda/selective_scan.h"
#include "kernels/cuda/short_convolution.h"

namespace mlc_native {
namespace {

constexpr int64_t kAlignFloats = 64;  // of a layer's state

int64_t FloatsOf(const ModelConfig& config) {
  if (config.convolution) {
    return kernels::cuda::ConvolutionStateFloats(config.convolution->channels,
                                                 config.convolution->width);
  }
  if (config.scan) return kernels::cuda::ScanStateFloats(ScanShapeOf(*config.scan));
  return kernels::cuda::DeltaStateFloats(config.mamba ? DeltaShapeOf(*config.mamba)
                                                      : DeltaShapeOf(*config.delta));
}

int64_t LayerFloats(const ModelConfig& config) {
  return (FloatsOf(config) + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
}

}  // namespace

int64_t DeviceRecurrent::BytesPerSlot(const ModelConfig& config) {
  if (!config.has_states()) return 0;
  const auto layers = std::ranges::count(config.layers, true, &LayerConfig::is_recurrent);
  return layers * LayerFloats(config) * static_cast<int64_t>(sizeof(float));
}

DeviceRecurrent::DeviceRecurrent(const ModelConfig& config, int64_t num_slots) {
  if (num_slots == 0) return;
  const int64_t bytes = BytesPerSlot(config);
  memory_ = kernels::cuda::DeviceMemory(static_cast<size_t>(num_slots * bytes));
  view_.data = reinterpret_cast<float*>(memory_.data());
  view_.slot_floats = bytes / static_cast<int64_t>(sizeof(float));
  int64_t at = 0;
  for (const LayerConfig& layer : config.layers) {
    view_.layer_floats.push_back(at);
    if (layer.is_recurrent) at += LayerFloats(config);
  }
}

}  // namespace mlc_native
