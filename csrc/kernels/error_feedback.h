// ErrorFeedback rounds a weight for the inputs that it is multiplied with: column by column, and
// the columns that follow make up for what rounding has changed in the products (GPTQ,
// arXiv:2210.17323). What it knows of the inputs x is x^T x, in blocks of 256 columns, so that
// memory grows with the columns and not with their square. Errors are passed on within a block
// only.
//
// A row of the weight is rounded alone and in the arithmetic of the base ISA, so the codes depend
// only on its values and on the inputs. Immutable; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "mlc_native/detail/export.h"

namespace mlc_native::kernels {

// Must be raised with every change of the codes that it gives.
inline constexpr int kFeedbackVersion = 1;

// Rows of inputs of a linear: row i is row rows[i] of x, or row i without `rows`.
struct InputRows {
  const float* x = nullptr;
  int64_t ldx = 0;
  const int32_t* rows = nullptr;
  int64_t m = 0;
};

class MLC_NATIVE_PRIVATE_API ErrorFeedback {
 public:
  static constexpr int64_t kBlock = 256;

  // For a weight of k columns. Each sum over the rows has the order of Linear, whatever the number
  // of threads. Where inputs are not finite or all zero, rounding is plain.
  ErrorFeedback(const Cpu& cpu, const InputRows& inputs, int64_t k);

  // Whether a weight of this format can be rounded.
  static bool Rounds(WeightFormat format);

  // Fills codes[n * k] and scales[n * ceil(k / group)] for the rows w[n, k] (PackCodes; the group
  // is the format's). Values that are not finite make those of their block NaN. Requires:
  // Rounds(format).
  void Round(WeightFormat format, std::span<const float> w, int8_t* codes, uint16_t* scales) const;

 private:
  int64_t k_;
  // Of each block the upper triangle U with U^T U = (x^T x + damping)^-1: after column i was
  // rounded with error e, column j > i becomes w[j] - e U[i][j] / U[i][i]. Row-major, one after the
  // other.
  std::vector<float> factors_;
};

}  // namespace mlc_native::kernels
