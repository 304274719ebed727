#include "weights/weight_layout.h"

namespace mlc_native {

WeightLayout::WeightLayout(const WeightPlan& plan, const WeightForm& form)
    : plan_(plan), form_(form) {
  // Device memory has the same alignment, which the vector loads of every kernel need.
  constexpr size_t kAlign = 256;
  static_assert(kAlign % kernels::kPackedAlignment == 0);
  for (size_t i = 0; i < plan_.map.parameters.size(); ++i) {
    offsets_.push_back(bytes_);
    bytes_ += (BytesOfRows(i, plan_.map.parameters[i].rows) + kAlign - 1) / kAlign * kAlign;
  }
}

size_t WeightLayout::BytesOfRows(size_t parameter, int64_t rows) const {
  const Parameter& p = plan_.map.parameters[parameter];
  switch (p.form) {
    case ParameterForm::kPacked:
      return form_.MatrixBytes(plan_.formats[parameter], rows, p.columns);
    case ParameterForm::kTable:
      return static_cast<size_t>(rows * p.columns) * DTypeSize(plan_.dtype);
    case ParameterForm::kVector:
      return static_cast<size_t>(rows * p.columns) *
             DTypeSize(form_.VectorType(plan_.vector_precision(parameter)));
  }
  return 0;
}

std::vector<ByteRange> WeightLayout::BytesOfEveryForward() const {
  const std::vector<bool> of_experts = plan_.map.ParametersOfExperts();
  std::vector<ByteRange> ranges;
  for (size_t i = 0; i < of_experts.size(); ++i) {
    if (of_experts[i]) continue;
    ranges.push_back({Offset(i), Offset(i) + BytesOfRows(i, plan_.map.parameters[i].rows)});
  }
  return ranges;
}

}  // namespace mlc_native
