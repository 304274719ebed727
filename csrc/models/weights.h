// The weights of a decoder in the form that the kernels read. Immutable after loading; views into
// one block of memory.
#pragma once

#include <array>
#include <vector>

#include "kernels/kernels.h"
#include "models/arch_spec.h"
#include "models/tensor_storage.h"

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

struct DecoderWeights {
  DType dtype = DType::kFloat32;  // of what is not quantized
  std::vector<LayerWeights> layers;
  const float* final_norm = nullptr;
  kernels::PackedLinear head;    // [vocab, hidden]; tied: the embeddings, too
  kernels::RowTable embeddings;  // data is null when tied
  TensorStorage storage;
};

}  // namespace mlc_native
