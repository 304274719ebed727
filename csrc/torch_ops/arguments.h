// Checks the tensors of an op and converts them to the arguments of kernels: rows with a stride,
// lists on the host. A failed check is a ValueError that begins with the argument's name. Any
// thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "mlc_native/detail/dtype.h"
#include "torch_ops/check_value.h"
#include "torch_ops/tensor.h"

namespace mlc_native::ops {

inline constexpr int64_t kAny = -1;  // a size that is not checked

// Checks that `x` is on the device of `like` and has one of the dtypes and these sizes (none given:
// any).
void Check(const char* name, const Tensor& x, const Tensor& like,
           std::initializer_list<ScalarType> dtypes, std::initializer_list<int64_t> sizes);
// Checks for float32, bfloat16 or float16, at least one dimension, and a last one that is not
// empty.
void CheckActivations(const char* name, const Tensor& x);
// Checks that all elements of x, which is int32 or int64, are in [low, high). Does nothing where
// the check would wait for a device; the caller ensures it there.
void CheckRange(const char* name, const Tensor& x, int64_t high, int64_t low = 0);

DType DTypeOf(const Tensor& x);

// x[..., n] as m rows, with a contiguous last dimension and rows at multiples of `alignment` bytes.
// A copy if x does not have this layout.
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
  // True if it uses the memory of the original tensor, so that writes are visible there.
  bool is_view() const { return is_view_; }

 private:
  Tensor rows_;
  bool is_view_;
};

// The same for an argument that is written to. Throws ValueError if it would need a copy.
Rows MutableRows(const char* name, const Tensor& x, int64_t alignment);

// Returns one value per row on the host, and `missing` for all rows if the argument is absent.
template <typename T>
std::vector<T> PerRow(const char* name, const OptionalTensor& x, int64_t rows, T missing);

}  // namespace mlc_native::ops
