#include "models/recurrent_storage.h"

#include <algorithm>

#include "kernels/selective_scan.h"
#include "kernels/short_convolution.h"

namespace mlc_native {
namespace {

int64_t FloatsOf(const ModelConfig& config) {
  if (config.convolution) {
    return kernels::ConvolutionStateFloats(config.convolution->channels, config.convolution->width);
  }
  if (config.scan) return kernels::ScanStateFloats(RecurrentStorage::ShapeOf(*config.scan));
  return kernels::DeltaStateFloats(config.mamba ? RecurrentStorage::ShapeOf(*config.mamba)
                                                : RecurrentStorage::ShapeOf(*config.delta));
}

// In whole cache lines.
int64_t LayerFloats(const ModelConfig& config) {
  constexpr int64_t kLine = kernels::kPackedAlignment / sizeof(float);
  return (FloatsOf(config) + kLine - 1) / kLine * kLine;
}

}  // namespace

int64_t RecurrentStorage::BytesPerSlot(const ModelConfig& config) {
  if (!config.has_states()) return 0;
  const auto layers = std::ranges::count(config.layers, true, &LayerConfig::is_recurrent);
  return layers * LayerFloats(config) * static_cast<int64_t>(sizeof(float));
}

RecurrentStorage::RecurrentStorage(const ModelConfig& config, int64_t num_slots)
    : num_slots_(num_slots),
      slot_bytes_(BytesPerSlot(config)),
      storage_(static_cast<size_t>(num_slots * slot_bytes_), "max_num_sequence") {
  int64_t at = 0;
  for (const LayerConfig& layer : config.layers) {
    layer_floats_.push_back(at);
    if (layer.is_recurrent) at += LayerFloats(config);
  }
}

}  // namespace mlc_native
