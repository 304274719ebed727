// PanelForm is the layout of weights on the CPU: panels of one ISA (kernels/packed_format.h) and
// vectors of float32. Stateless; any thread.
#pragma once

#include "weights/weight_form.h"

namespace mlc_native {

class PanelForm : public WeightForm {
 public:
  explicit PanelForm(const kernels::CpuKernels& isa) : isa_(isa) {}

  kernels::PackedLinear Linear(const PackedMatrix& matrix) const {
    return kernels::MakePackedLinear(isa_, matrix.format, matrix.n, matrix.k, matrix.data);
  }

  int64_t panel_width() const override { return kernels::PanelWidth(isa_); }
  size_t MatrixBytes(kernels::WeightFormat format, int64_t n, int64_t k) const override {
    return kernels::PackedLinearBytes(isa_, format, n, k);
  }
  void Pack(const PackedMatrix& matrix, int64_t row,
            const kernels::PackSource& rows) const override {
    kernels::PackLinear(Linear(matrix), row, rows);
  }
  void Pack(const PackedMatrix& matrix, int64_t row,
            const kernels::PackCodes& rows) const override {
    kernels::PackLinear(Linear(matrix), row, rows);
  }
  DType VectorType(DType /*precision*/) const override { return DType::kFloat32; }

 private:
  const kernels::CpuKernels& isa_;
};

}  // namespace mlc_native
