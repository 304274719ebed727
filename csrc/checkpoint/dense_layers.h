// DenseLayers: what the pooled hidden state of a text goes through: the Dense modules of
// sentence-transformers, or the matrix of a classifier. A layer multiplies, adds its bias and
// applies its activation. Weights are finite; immutable after construction; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace mlc_native {

enum class DenseActivation { kIdentity, kTanh, kRelu, kGelu, kSigmoid, kSilu };

// That of a class of torch, by its full or its last name ("torch.nn.modules.activation.Tanh");
// nullopt: it is not supported.
std::optional<DenseActivation> FindDenseActivation(const std::string& name);

struct DenseLayer {
  int64_t input_size = 0;
  std::vector<float> weight{};  // [outputs, input_size]
  std::vector<float> bias{};    // [outputs], or empty
  DenseActivation activation = DenseActivation::kIdentity;
  std::vector<float> norm{};  // [outputs]: of a LayerNorm behind it; or empty
  double norm_eps = 0;

  int64_t output_size() const { return std::ssize(weight) / input_size; }
};

class DenseLayers {
 public:
  // Requires: there is one, and each takes what the one before it gives.
  explicit DenseLayers(std::vector<DenseLayer> layers, std::optional<int32_t> padding = {});

  int64_t input_size() const { return layers_.front().input_size; }
  int64_t output_size() const { return layers_.back().output_size(); }
  // Of a classifier: such tokens at the end of a text are left out, as transformers does it.
  std::optional<int32_t> padding() const { return padding_; }
  // Requires: input_size() numbers. Returns output_size() of them.
  std::vector<double> Apply(std::span<const double> state) const;

 private:
  std::vector<DenseLayer> layers_;
  std::optional<int32_t> padding_;
};

// Reads a matrix [rows, columns], or a vector, of a checkpoint as floats. Throws LoadError if it is
// not there, is not stored as floats, has other dimensions or numbers that are not finite.
std::vector<float> ReadDenseMatrix(const Checkpoint& checkpoint, const std::string& name,
                                   int64_t rows, int64_t columns);
std::vector<float> ReadDenseVector(const Checkpoint& checkpoint, const std::string& name,
                                   int64_t size);

}  // namespace mlc_native
