// Which tensor of a checkpoint fills which rows of which parameter: the shapes a decoder must find,
// with fusions as row offsets. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arch/model_config.h"

namespace mlc_native {

enum class ParameterForm : uint8_t {
  kPacked,  // matrix for Linear
  kTable,   // row-major matrix for look-ups
  kVector,  // float32
};

struct Parameter {
  ParameterForm form = ParameterForm::kPacked;
  int64_t rows = 0;  // of a vector: its elements
  int64_t columns = 1;
};

// Tensor `name` of `shape` fills the rows from row_offset of parameters[parameter].
struct WeightSlot {
  std::string name;
  std::vector<int64_t> shape;
  size_t parameter = 0;
  int64_t row_offset = 0;
};

// Index into parameters, or kAbsent.
struct LayerParameters {
  static constexpr size_t kAbsent = static_cast<size_t>(-1);
  std::vector<size_t> matrices;  // [kNumMatrices]
  std::vector<size_t> vectors;   // [kNumVectors]
};

struct WeightMap {
  std::vector<Parameter> parameters;
  std::vector<WeightSlot> slots;

  std::vector<LayerParameters> layers;
  size_t final_norm = 0;
  size_t head = 0;
  size_t embeddings = LayerParameters::kAbsent;  // absent when tied

  // The layers of a decoder as LayerWeights or their like; matrix(p) and vector(p) make views of
  // parameters.
  template <typename Layer, typename MatrixFn, typename VectorFn>
  std::vector<Layer> MakeLayers(const MatrixFn& matrix, const VectorFn& vector) const {
    std::vector<Layer> made(layers.size());
    for (size_t i = 0; i < layers.size(); ++i) {
      for (size_t m = 0; m < kNumMatrices; ++m) made[i].matrices[m] = matrix(layers[i].matrices[m]);
      for (size_t v = 0; v < kNumVectors; ++v) {
        const size_t p = layers[i].vectors[v];
        if (p != LayerParameters::kAbsent) made[i].vectors[v] = vector(p);
      }
    }
    return made;
  }

  // Whether its rounding errors cost most: the head's are the logits', and all layers pass on what
  // the first one gets wrong.
  bool IsSensitive(size_t parameter) const;
};

// Names inside the decoder ("layers.0...", "embed_tokens") get `prefix`; the head is `head_name`.
struct WeightNames {
  std::string prefix;
  std::string head;  // "" when tied
};
WeightMap MakeWeightMap(const ModelConfig& config, const WeightNames& names);

}  // namespace mlc_native
