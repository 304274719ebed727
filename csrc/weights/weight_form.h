// WeightForm is the layout of packed parameters in memory, one for each kind of device. Stateless;
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"
#include "mlc_native/detail/export.h"

namespace mlc_native {

// The memory of a matrix [n, k].
struct PackedMatrix {
  kernels::WeightFormat format = kernels::WeightFormat::kFloat32;
  int64_t n = 0;
  int64_t k = 0;
  std::byte* data = nullptr;
};

class WeightForm {
 public:
  virtual ~WeightForm() = default;

  // Rows per panel. Threads write to different panels.
  virtual int64_t panel_width() const = 0;
  virtual size_t MatrixBytes(kernels::WeightFormat format, int64_t n, int64_t k) const = 0;
  // Writes the rows of the source to the rows of the matrix from `row` on, rounded or quantized.
  // The call that writes row n - 1 also pads the last panel.
  virtual void Pack(const PackedMatrix& matrix, int64_t row,
                    const kernels::PackSource& rows) const = 0;
  virtual void Pack(const PackedMatrix& matrix, int64_t row,
                    const kernels::PackCodes& rows) const = 0;
  // The storage type of vectors whose values have this precision.
  virtual DType VectorType(DType precision) const = 0;
};

// Writes contiguous rows as elements of another type from `first` on, rounded to nearest even.
MLC_NATIVE_PRIVATE_API void ConvertRows(DType to, std::byte* out, int64_t first,
                                        const kernels::PackSource& from, int64_t columns);

}  // namespace mlc_native
