// DeviceForm is the layout of weights on a CUDA device: row-major floats; q8 (also with groups of
// 32), q4 (also affine), mxfp4 and fp8 in the layout of PackGemvWeights (with the codes and scales
// of the CPU); vectors in the decoder's type. Stateless; any thread.
#pragma once

#include <array>

#include "weights/weight_form.h"

namespace mlc_native {

class DeviceForm : public WeightForm {
 public:
  // The bytes of a row in each of the consecutive arrays of a matrix: floats, or codes and scales.
  static std::array<size_t, 2> RowBytes(kernels::WeightFormat format, int64_t k);

  int64_t panel_width() const override { return kRows; }
  size_t MatrixBytes(kernels::WeightFormat format, int64_t n, int64_t k) const override;
  void Pack(const PackedMatrix& matrix, int64_t row,
            const kernels::PackSource& rows) const override;
  void Pack(const PackedMatrix& matrix, int64_t row, const kernels::PackCodes& rows) const override;
  DType VectorType(DType precision) const override { return precision; }

 private:
  static constexpr int64_t kRows = 8;  // rows per call; they are independent
};

}  // namespace mlc_native
