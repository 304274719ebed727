#include "models/weight_layout.h"

#include <utility>

namespace mlc_native {

WeightLayout::WeightLayout(const WeightMap& map, DType dtype,
                           std::vector<kernels::WeightFormat> formats,
                           const kernels::CpuKernels& isa)
    : map_(map), dtype_(dtype), formats_(std::move(formats)), isa_(isa) {
  constexpr size_t kAlign = kernels::kPackedAlignment;
  for (size_t i = 0; i < map_.parameters.size(); ++i) {
    offsets_.push_back(bytes_);
    bytes_ += (Bytes(i) + kAlign - 1) / kAlign * kAlign;
  }
}

int64_t WeightLayout::panel_width() const { return kernels::PanelWidth(isa_); }

size_t WeightLayout::Bytes(size_t parameter) const {
  const Parameter& p = map_.parameters[parameter];
  switch (p.form) {
    case ParameterForm::kPacked:
      return kernels::PackedLinearBytes(isa_, formats_[parameter], p.rows, p.columns);
    case ParameterForm::kTable:
      return static_cast<size_t>(p.rows * p.columns) * DTypeSize(dtype_);
    case ParameterForm::kVector:
      return static_cast<size_t>(p.rows) * sizeof(float);
  }
  return 0;
}

kernels::PackedLinear WeightLayout::Packed(size_t parameter, std::byte* memory) const {
  const Parameter& p = map_.parameters[parameter];
  return kernels::MakePackedLinear(isa_, formats_[parameter], p.rows, p.columns,
                                   Data(parameter, memory));
}

DecoderWeights WeightLayout::View(WeightMemory memory) const {
  DecoderWeights weights;
  weights.dtype = dtype_;
  std::byte* base = memory.data;
  const auto vector = [&](size_t p) { return reinterpret_cast<const float*>(Data(p, base)); };
  for (const LayerParameters& layer : map_.layers) {
    LayerWeights& out = weights.layers.emplace_back();
    for (size_t m = 0; m < kNumMatrices; ++m) out.matrices[m] = Packed(layer.matrices[m], base);
    for (size_t v = 0; v < kNumVectors; ++v) {
      if (layer.vectors[v] != LayerParameters::kAbsent) out.vectors[v] = vector(layer.vectors[v]);
    }
  }
  weights.final_norm = vector(map_.final_norm);
  weights.head = Packed(map_.head, base);
  if (map_.embeddings != LayerParameters::kAbsent) {
    const Parameter& table = map_.parameters[map_.embeddings];
    weights.embeddings = {.dtype = dtype_,
                          .data = Data(map_.embeddings, base),
                          .n = table.rows,
                          .k = table.columns,
                          .ld = table.columns};
  }
  weights.memory = std::move(memory);
  return weights;
}

}  // namespace mlc_native
