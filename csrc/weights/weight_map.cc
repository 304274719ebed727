#include "weights/weight_map.h"

#include <algorithm>

namespace mlc_native {

std::vector<int64_t> RowsOfTensor::StoredShape(std::span<const int64_t> shape) const {
  if (shape.size() == 1) return {num_rows};
  return {num_rows, shape[transposed ? 0 : 1]};
}

std::vector<WeightSlot> WeightSlot::Tensors() const {
  std::vector<WeightSlot> tensors = {*this};
  for (const Beside& part : beside) {
    tensors.front().shape[1] -= part.columns;
    WeightSlot& slot = tensors.emplace_back(*this);
    slot.name = part.name;
    slot.shape[1] = part.columns;
  }
  for (WeightSlot& slot : tensors) slot.beside.clear();
  return tensors;
}

std::vector<int64_t> WeightSlot::UnpaddedShape() const {
  std::vector<int64_t> unpadded = shape;
  if (padding.padded == 0) return unpadded;
  int64_t& size = unpadded[padding.in_columns ? 1 : 0];
  size = size / padding.padded * padding.stored;
  return unpadded;
}

size_t WeightMap::AddParameter(ParameterForm form, int64_t rows, int64_t columns) {
  parameters.push_back({form, rows, columns});
  return parameters.size() - 1;
}

size_t WeightMap::AddWhole(ParameterForm form, const std::string& name,
                           std::vector<int64_t> shape) {
  const size_t index = AddParameter(form, shape[0], shape.size() > 1 ? shape[1] : 1);
  slots.push_back({name, std::move(shape), index, 0});
  return index;
}

bool WeightMap::IsSensitive(size_t parameter) const {
  if (parameter == head) return true;
  return !layers.empty() &&
         std::ranges::count(layers.front().linears, parameter, &LinearParameters::matrix) > 0;
}

std::vector<bool> WeightMap::ParametersOfExperts() const {
  std::vector<bool> found(parameters.size(), false);
  for (const LayerParameters& layer : layers) {
    for (const LinearParameters& linear : layer.linears) {
      if (!IsOfExperts(linear.key.role)) continue;
      for (const size_t parameter : {linear.matrix, linear.bias}) {
        if (parameter != kAbsent) found[parameter] = true;
      }
    }
  }
  return found;
}

}  // namespace mlc_native
