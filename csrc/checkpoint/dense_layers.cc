#include "checkpoint/dense_layers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "support/check.h"
#include "support/error.h"
#include "support/half.h"

namespace mlc_native {
namespace {

struct NamedActivation {
  std::string_view name;
  DenseActivation activation;
};

constexpr NamedActivation kActivations[] = {
    {"Identity", DenseActivation::kIdentity}, {"Tanh", DenseActivation::kTanh},
    {"ReLU", DenseActivation::kRelu},         {"GELU", DenseActivation::kGelu},
    {"Sigmoid", DenseActivation::kSigmoid},   {"SiLU", DenseActivation::kSilu},
};

double Activated(DenseActivation activation, double x) {
  switch (activation) {
    case DenseActivation::kIdentity:
      return x;
    case DenseActivation::kTanh:
      return std::tanh(x);
    case DenseActivation::kRelu:
      return std::max(x, 0.0);
    case DenseActivation::kGelu:
      return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
    case DenseActivation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case DenseActivation::kSilu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

// Several sums, which a compiler computes side by side, in an order that is always the same.
double DenseProduct(const float* weights, const double* state, int64_t size) {
  constexpr int64_t kSums = 8;
  std::array<double, kSums> sums{};
  int64_t i = 0;
  for (; i + kSums <= size; i += kSums) {
    for (int64_t lane = 0; lane < kSums; ++lane) {
      sums[lane] += double{weights[i + lane]} * state[i + lane];
    }
  }
  for (; i < size; ++i) sums[0] += double{weights[i]} * state[i];
  double sum = 0;
  for (const double each : sums) sum += each;
  return sum;
}

// LayerNorm.
void Normalize(const DenseLayer& layer, std::vector<double>* values) {
  const auto size = static_cast<double>(values->size());
  double sum = 0, squares = 0;
  for (const double value : *values) sum += value;
  const double mean = sum / size;
  for (const double value : *values) squares += (value - mean) * (value - mean);
  const double scale = 1 / std::sqrt(squares / size + layer.norm_eps);
  for (size_t i = 0; i < values->size(); ++i) {
    (*values)[i] = ((*values)[i] - mean) * scale * layer.norm[i];
  }
}

std::vector<double> Applied(const DenseLayer& layer, std::span<const double> state) {
  std::vector<double> outputs(static_cast<size_t>(layer.output_size()));
  const float* weights = layer.weight.data();
  for (size_t i = 0; i < outputs.size(); ++i, weights += layer.input_size) {
    const double bias = layer.bias.empty() ? 0 : layer.bias[i];
    outputs[i] =
        Activated(layer.activation, DenseProduct(weights, state.data(), layer.input_size) + bias);
  }
  if (!layer.norm.empty()) Normalize(layer, &outputs);
  return outputs;
}

std::vector<float> ReadFloats(const Checkpoint& checkpoint, const std::string& name,
                              const std::vector<int64_t>& shape) {
  const Checkpoint::Entry* const entry = checkpoint.Find(name);
  if (entry == nullptr) throw LoadError(name, "the checkpoint has no tensor \"" + name + '"');
  const TensorInfo& tensor = *entry->tensor;
  const std::string& path = entry->file->path;
  if (!tensor.dtype) {
    FailTensor(path, name, "has the type " + tensor.dtype_name + "; must be F32, BF16 or F16");
  }
  if (tensor.shape != shape) {
    FailTensor(path, name,
               "has the shape " + ShapeString(tensor.shape) + "; must be " + ShapeString(shape));
  }
  std::vector<std::byte> bytes(tensor.bytes);
  const TensorReader reader = entry->Open();
  reader.Read(0, bytes);
  reader.Finish();
  std::vector<float> values(bytes.size() / DTypeSize(*tensor.dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = LoadElement(*tensor.dtype, bytes.data(), static_cast<int64_t>(i));
    if (!std::isfinite(values[i])) FailTensor(path, name, "has numbers that are not finite");
  }
  return values;
}

}  // namespace

std::optional<DenseActivation> FindDenseActivation(const std::string& name) {
  const std::string last = name.substr(name.rfind('.') + 1);
  const auto* const found = std::ranges::find(kActivations, last, &NamedActivation::name);
  if (found == std::end(kActivations)) return std::nullopt;
  return found->activation;
}

DenseLayers::DenseLayers(std::vector<DenseLayer> layers, std::optional<int32_t> padding)
    : layers_(std::move(layers)), padding_(padding) {
  MLC_CHECK(!layers_.empty());
  for (size_t i = 1; i < layers_.size(); ++i) {
    MLC_CHECK(layers_[i].input_size == layers_[i - 1].output_size());
  }
}

std::vector<double> DenseLayers::Apply(std::span<const double> state) const {
  MLC_CHECK(std::ssize(state) == input_size()) << state.size() << " of " << input_size();
  std::vector<double> values = Applied(layers_.front(), state);
  for (size_t i = 1; i < layers_.size(); ++i) values = Applied(layers_[i], values);
  return values;
}

std::vector<float> ReadDenseMatrix(const Checkpoint& checkpoint, const std::string& name,
                                   int64_t rows, int64_t columns) {
  return ReadFloats(checkpoint, name, {rows, columns});
}

std::vector<float> ReadDenseVector(const Checkpoint& checkpoint, const std::string& name,
                                   int64_t size) {
  return ReadFloats(checkpoint, name, {size});
}

}  // namespace mlc_native
