// From tensors to what kernels take: checks whose ValueError begins with the argument's name, rows
// with a stride, lists on the host. Knows no kernel. Any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "support/dtype.h"
#include "torch_ops/check_value.h"
#include "torch_ops/tensor.h"

namespace mlc_native::ops {

inline constexpr int64_t kAny = -1;  // a size that is not looked at

// `x` is on the device of `like`, has one of the dtypes and these sizes (none given: any).
void Check(const char* name, const Tensor& x, const Tensor& like,
           std::initializer_list<ScalarType> dtypes, std::initializer_list<int64_t> sizes);
// float32, bfloat16 or float16, at least one dimension, the last one not empty.
void CheckActivations(const char* name, const Tensor& x);
// All of x, which is int32 or int64, in [low, high). Looked at only where it costs no wait for a
// device; there it is the caller's promise.
void CheckRange(const char* name, const Tensor& x, int64_t high, int64_t low = 0);

DType DTypeOf(const Tensor& x);

// x[..., n] as m rows, the last dimension contiguous, rows `alignment` bytes from each other and
// from the start; a copy where x is not so.
class Rows {
 public:
  Rows(const Tensor& x, int64_t alignment);

  int64_t m() const { return rows_.size(0); }
  int64_t n() const { return rows_.size(1); }
  int64_t ld() const { return m() > 1 ? rows_.stride(0) : n(); }
  const Tensor& tensor() const { return rows_; }
  template <typename T = void>
  T* data() const {
    return static_cast<T*>(rows_.data_ptr());
  }
  // The memory of the tensor it was made of, so that writing to it is seen.
  bool is_view() const { return is_view_; }

 private:
  Tensor rows_;
  bool is_view_;
};

// The same of an argument that is written to: ValueError where that would need a copy.
Rows MutableRows(const char* name, const Tensor& x, int64_t alignment);

// One value per row on the host; `missing` for all rows where the argument is absent.
template <typename T>
std::vector<T> PerRow(const char* name, const OptionalTensor& x, int64_t rows, T missing);

}  // namespace mlc_native::ops
