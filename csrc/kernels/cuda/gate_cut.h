// Gates that are cut on CUDA: of each row, what lies some standard deviations above the mean of the
// gates is subtracted from them, and what is below zero then is zero.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "mlc_native/detail/basic_types.h"

namespace mlc_native::kernels::cuda {

// x[i, 0:n] = max(x[i, 0:n] - mean - deviations * (standard deviation), 0).
struct CutGatesArgs {
  DType dtype = DType::kBFloat16;
  void* x = nullptr;
  int64_t ld = 0;  // a multiple of 8, and so is n
  float deviations = 0.0f;
  int64_t m = 0;
  int64_t n = 0;
  // Where x has a part of rows of whole_n elements: the sum of each, and that of their squares.
  const float* sums = nullptr;  // [m, 2]
  int64_t whole_n = 0;
};
void CutGates(const CutGatesArgs& args, Stream stream);

// Writes these sums, of a part of the rows.
void SumGates(const CutGatesArgs& args, float* sums, Stream stream);

}  // namespace mlc_native::kernels::cuda
