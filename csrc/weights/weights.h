// The weights of a decoder in the form that the kernels read. Immutable after loading; views into
// one block of memory.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "arch/arch_spec.h"
#include "kernels/kernels.h"

namespace mlc_native {

struct LayerWeights {
  std::array<kernels::PackedLinear, kNumMatrices> matrices;
  std::array<const float*, kNumVectors> vectors{};  // null: the family has none

  const kernels::PackedLinear& matrix(Matrix m) const { return matrices[static_cast<size_t>(m)]; }
  const float* vector(Vector v) const { return vectors[static_cast<size_t>(v)]; }
  const float* bias(Matrix m) const {
    return vectors[static_cast<size_t>(Vector::kQkvBias) + static_cast<size_t>(m)];
  }
};

// Memory and whoever keeps it.
struct WeightMemory {
  std::byte* data = nullptr;  // kPackedAlignment
  size_t size = 0;
  bool mapped = false;  // of a file, and so not to be written to
  std::shared_ptr<const void> owner;
};

struct DecoderWeights {
  DType dtype = DType::kFloat32;  // of what is not quantized
  std::vector<LayerWeights> layers;
  const float* final_norm = nullptr;
  kernels::PackedLinear head;    // [vocab, hidden]; tied: the embeddings, too
  kernels::RowTable embeddings;  // data is null when tied
  WeightMemory memory;
};

}  // namespace mlc_native
