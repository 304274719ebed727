#include "torch_ops/arguments.h"

#include <algorithm>
#include <string>

namespace mlc_native::ops {
namespace {

std::string ShapeText(std::initializer_list<int64_t> sizes) {
  std::string text;
  for (int64_t size : sizes) {
    text += (text.empty() ? "" : ", ") + (size == kAny ? "any" : std::to_string(size));
  }
  return "[" + text + "]";
}

bool HasSizes(const Tensor& x, std::initializer_list<int64_t> sizes) {
  const Sizes actual = x.sizes();
  return std::equal(sizes.begin(), sizes.end(), actual.begin(), actual.end(),
                    [](int64_t wanted, int64_t size) { return wanted == kAny || wanted == size; });
}

Tensor ToRows(const Tensor& x) {
  const int64_t n = x.size(-1);
  return torch::stable::reshape(x, {n == 0 ? 0 : x.numel() / n, n});
}

bool IsAligned(const Tensor& rows, int64_t alignment) {
  if (IsMeta(rows) || rows.numel() == 0) return true;
  if (rows.size(1) > 1 && rows.stride(1) != 1) return false;
  if (reinterpret_cast<uintptr_t>(rows.data_ptr()) % static_cast<uintptr_t>(alignment) != 0) {
    return false;
  }
  // Kernels do not accept rows with a stride of 0 or a negative one.
  const auto element = static_cast<int64_t>(rows.element_size());
  return rows.size(0) <= 1 ||
         (rows.stride(0) >= rows.size(1) && rows.stride(0) * element % alignment == 0);
}

template <typename T>
void CheckItems(const char* name, const Tensor& x, int64_t high, int64_t low) {
  const Tensor list = torch::stable::contiguous(x);
  const T* begin = list.const_data_ptr<T>();
  const auto [least, most] = std::minmax_element(begin, begin + list.numel());
  CheckValue(*least >= low && *most < high, name, " must be in [", low, ", ", high, "), got ",
             int64_t{*least}, " to ", int64_t{*most});
}

}  // namespace

void Check(const char* name, const Tensor& x, const Tensor& like,
           std::initializer_list<ScalarType> dtypes, std::initializer_list<int64_t> sizes) {
  CheckValue(x.device() == like.device(), name, " must be on ", like.device(),
             ", like the other arguments, got ", x.device());
  const ScalarType dtype = x.scalar_type();
  CheckValue(dtypes.size() == 0 || std::ranges::find(dtypes, dtype) != dtypes.end(), name,
             " must be of type ", dtypes, ", got ", dtype);
  if (sizes.size() == 0 || HasSizes(x, sizes)) return;
  CheckValue(false, name, " must have shape ", ShapeText(sizes), ", got ", x.sizes());
}

void CheckActivations(const char* name, const Tensor& x) {
  const ScalarType dtype = x.scalar_type();
  CheckValue(
      dtype == ScalarType::Float || dtype == ScalarType::BFloat16 || dtype == ScalarType::Half,
      name, " must be of type float32, bfloat16 or float16, got ", dtype);
  CheckValue(x.dim() > 0 && x.size(-1) > 0, name,
             " must have a last dimension that is not empty, got shape ", x.sizes());
}

void CheckRange(const char* name, const Tensor& x, int64_t high, int64_t low) {
  if (!x.is_cpu() || x.numel() == 0) return;
  if (x.scalar_type() == ScalarType::Long) return CheckItems<int64_t>(name, x, high, low);
  CheckItems<int32_t>(name, x, high, low);
}

DType DTypeOf(const Tensor& x) {
  switch (x.scalar_type()) {
    case ScalarType::BFloat16:
      return DType::kBFloat16;
    case ScalarType::Half:
      return DType::kFloat16;
    default:
      return DType::kFloat32;
  }
}

Rows::Rows(const Tensor& x, int64_t alignment) : rows_(ToRows(x)) {
  if (!IsAligned(rows_, alignment)) {
    Tensor packed = Empty(rows_.sizes(), rows_, rows_.scalar_type());
    rows_ = torch::stable::copy_(packed, rows_);
  }
  is_view_ = IsMeta(x) || rows_.data_ptr() == x.data_ptr();
}

Rows MutableRows(const char* name, const Tensor& x, int64_t alignment) {
  Rows rows(x, alignment);
  CheckValue(rows.is_view() || x.numel() == 0, name,
             " is written to: its last dimension must be contiguous and its rows at multiples of ",
             alignment, " bytes, got strides ", x.strides());
  return rows;
}

template <typename T>
std::vector<T> PerRow(const char* name, const OptionalTensor& x, int64_t rows, T missing) {
  if (!x.has_value()) return std::vector<T>(static_cast<size_t>(rows), missing);
  if (x->dim() != 1 || (rows != kAny && x->size(0) != rows)) {
    CheckValue(false, name, " must have shape ", ShapeText({rows}), ", got ", x->sizes());
  }
  const Tensor host = ToHost(*x, torch::headeronly::CppTypeToScalarType<T>::value);
  const T* data = host.const_data_ptr<T>();
  return {data, data + host.numel()};
}

template std::vector<int32_t> PerRow(const char*, const OptionalTensor&, int64_t, int32_t);
template std::vector<int64_t> PerRow(const char*, const OptionalTensor&, int64_t, int64_t);
template std::vector<double> PerRow(const char*, const OptionalTensor&, int64_t, double);

}  // namespace mlc_native::ops
