// What a Transformer has for adapters.
#include <algorithm>
#include <memory>

#include "models/transformer.h"

namespace mlc_native {

void Transformer::AllocateAdapterRows(int64_t max_num_rows) {
  int64_t max_rows = 0, max_columns = 0;
  for (const CpuDecoderWeights::Layer& layer : weights_.layers) {
    for (const LinearRole role : kLinearRoles) {
      if (!TakesAdapters(role) || layer.num_experts(role) == 0) continue;
      const kernels::PackedLinear& w = layer.linear(role).matrix;
      max_rows = std::max(max_rows, w.n);
      max_columns = std::max(max_columns, w.k);
    }
  }
  adapter_rows_.Allocate(max_num_rows, max_rows, max_columns);
}

std::shared_ptr<const AdapterLoader> Transformer::adapter_loader() const {
  if (weights_.adapter_targets == nullptr) return nullptr;
  return std::make_shared<CpuAdapterLoader>(weights_.adapter_targets, std::ssize(config_.layers),
                                            weights_.dtype, *cpu_.isa);
}

}  // namespace mlc_native
