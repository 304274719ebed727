#include "torch_ops/arguments.h"

#include <ATen/ops/aminmax.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <string>

namespace mlc_native::ops {
namespace {

std::string Text(std::initializer_list<int64_t> sizes) {
  std::string text;
  for (int64_t size : sizes) {
    text += (text.empty() ? "" : ", ") + (size == kAny ? "any" : std::to_string(size));
  }
  return "[" + text + "]";
}

bool HasSizes(const at::Tensor& x, std::initializer_list<int64_t> sizes) {
  return std::equal(sizes.begin(), sizes.end(), x.sizes().begin(), x.sizes().end(),
                    [](int64_t wanted, int64_t size) { return wanted == kAny || wanted == size; });
}

at::Tensor ToRows(const at::Tensor& x) {
  const int64_t n = x.size(-1);
  return x.reshape({n == 0 ? 0 : x.numel() / n, n});
}

bool IsAligned(const at::Tensor& rows, int64_t alignment) {
  if (rows.is_meta() || rows.numel() == 0) return true;
  if (rows.size(1) > 1 && rows.stride(1) != 1) return false;
  if (reinterpret_cast<uintptr_t>(rows.data_ptr()) % static_cast<uintptr_t>(alignment) != 0) {
    return false;
  }
  // A stride of 0 or backwards is not what a kernel means by rows.
  return rows.size(0) <= 1 ||
         (rows.stride(0) >= rows.size(1) && rows.stride(0) * rows.element_size() % alignment == 0);
}

}  // namespace

void Check(const char* name, const at::Tensor& x, const at::Tensor& like,
           std::initializer_list<at::ScalarType> dtypes, std::initializer_list<int64_t> sizes) {
  TORCH_CHECK_VALUE(x.device() == like.device(), name, " must be on ", like.device(),
                    ", like the other arguments, got ", x.device());
  TORCH_CHECK_VALUE(dtypes.size() == 0 ||
                        std::find(dtypes.begin(), dtypes.end(), x.scalar_type()) != dtypes.end(),
                    name, " must be of type ", c10::ArrayRef<at::ScalarType>(dtypes), ", got ",
                    x.scalar_type());
  TORCH_CHECK_VALUE(sizes.size() == 0 || HasSizes(x, sizes), name, " must have shape ", Text(sizes),
                    ", got ", x.sizes());
}

void CheckActivations(const char* name, const at::Tensor& x) {
  TORCH_CHECK_VALUE(x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16 ||
                        x.scalar_type() == at::kHalf,
                    name, " must be of type float32, bfloat16 or float16, got ", x.scalar_type());
  TORCH_CHECK_VALUE(x.dim() > 0 && x.size(-1) > 0, name,
                    " must have a last dimension that is not empty, got shape ", x.sizes());
}

void CheckRange(const char* name, const at::Tensor& x, int64_t high, int64_t low) {
  if (!x.is_cpu() || x.numel() == 0) return;
  const auto [least, most] = at::aminmax(x);
  TORCH_CHECK_VALUE(least.item<int64_t>() >= low && most.item<int64_t>() < high, name,
                    " must be in [", low, ", ", high, "), got ", least.item<int64_t>(), " to ",
                    most.item<int64_t>());
}

DType DTypeOf(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kHalf:
      return DType::kFloat16;
    default:
      return DType::kFloat32;
  }
}

Rows::Rows(const at::Tensor& x, int64_t alignment) : rows_(ToRows(x)) {
  if (!IsAligned(rows_, alignment)) rows_ = rows_.clone(at::MemoryFormat::Contiguous);
  is_view_ = rows_.is_alias_of(x);
}

Rows MutableRows(const char* name, const at::Tensor& x, int64_t alignment) {
  Rows rows(x, alignment);
  TORCH_CHECK_VALUE(rows.is_view() || x.numel() == 0, name,
                    " is written to: its last dimension must be contiguous and its rows at "
                    "multiples of ",
                    alignment, " bytes, got strides ", x.strides());
  return rows;
}

template <typename T>
std::vector<T> PerRow(const char* name, const std::optional<at::Tensor>& x, int64_t rows,
                      T missing) {
  if (!x.has_value()) return std::vector<T>(static_cast<size_t>(rows), missing);
  TORCH_CHECK_VALUE(rows == kAny ? x->dim() == 1 : x->dim() == 1 && x->size(0) == rows, name,
                    " must have shape [", rows == kAny ? std::string("any") : std::to_string(rows),
                    "], got ", x->sizes());
  const at::Tensor host = x->to(at::kCPU, c10::CppTypeToScalarType<T>::value).contiguous();
  const T* data = host.const_data_ptr<T>();
  return {data, data + host.numel()};
}

template std::vector<int32_t> PerRow(const char*, const std::optional<at::Tensor>&, int64_t,
                                     int32_t);
template std::vector<int64_t> PerRow(const char*, const std::optional<at::Tensor>&, int64_t,
                                     int64_t);
template std::vector<double> PerRow(const char*, const std::optional<at::Tensor>&, int64_t, double);

}  // namespace mlc_native::ops
