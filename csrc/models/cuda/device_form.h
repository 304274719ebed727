// The form of weights on a CUDA device: floats row-major, q8 and q4 as PackGemvWeights has them
// (the codes and scales are those of the CPU), vectors in the decoder's type.
#pragma once

#include <array>

#include "weights/weight_form.h"

namespace mlc_native {

class DeviceForm : public WeightForm {
 public:
  // A matrix is one or two arrays, one after the other: floats, or codes and scales. Bytes of a row
  // in each.
  static std::array<size_t, 2> RowBytes(kernels::WeightFormat format, int64_t k);

  int64_t panel_width() const override { return kRows; }
  size_t MatrixBytes(kernels::WeightFormat format, int64_t n, int64_t k) const override;
  void Pack(const PackedMatrix& matrix, int64_t row,
            const kernels::PackSource& rows) const override;
  void Pack(const PackedMatrix& matrix, int64_t row, const kernels::PackCodes& rows) const override;
  DType VectorType(DType dtype) const override { return dtype; }

 private:
  static constexpr int64_t kRows = 8;  // rows are independent; so many to a call
};

}  // namespace mlc_native
