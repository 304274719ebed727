// Residual streams (AltUp) and LAuReL on CUDA, the counterpart of kernels/residual_streams.h for
// the CPU, which has the formulas of the steps.
//
// A row's result depends on its own inputs alone, bit by bit.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/residual_streams.h"
#include "mlc_native/detail/basic_types.h"

namespace mlc_native::kernels::cuda {

struct StreamArgs {
  StreamOp op = StreamOp::kSpread;
  DType dtype = DType::kBFloat16;  // of the norm, and of what kAdd adds
  StreamsView streams{};           // ld is dim, and step a multiple of 8
  float* x = nullptr;              // [m, dim], of all but kAdd
  const void* added = nullptr;     // kAdd: [m, dim]; kJoin: float32, as the streams from 1 on
  int64_t added_step = 0;          // kJoin: from part to part, a multiple of 8
  const void* norm = nullptr;      // [dim], of kPredict, kCorrect and kAdd
  float eps = 1e-6f;
  const float* router = nullptr;  // [count, dim], of kPredict and kCorrect
  const float* coefficients =
      nullptr;                   // kPredict: [count * count, count]; kCorrect: [count, count]
  const float* scale = nullptr;  // [dim], of kCorrect; null: ones
  int64_t m = 0;
  int64_t dim = 0;  // a multiple of 8
};
void RunStreams(const StreamArgs& args, Stream stream);

// residual = (residual + input) * scale + norm(x).
struct AddLaurelArgs {
  DType dtype = DType::kBFloat16;
  float* residual = nullptr;    // [m, dim]
  const void* input = nullptr;  // [m, dim]
  const void* x = nullptr;      // [m, dim]
  const void* norm = nullptr;   // [dim]
  float eps = 1e-6f;
  float scale = 1.0f;
  int64_t m = 0;
  int64_t dim = 0;  // a multiple of 8
};
void AddLaurel(const AddLaurelArgs& args, Stream stream);

}  // namespace mlc_native::kernels::cuda
