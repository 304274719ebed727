// The ends of products: what becomes of a sum. Every kernel that computes products of a GemvArgs
// calls these functions, so that a row has the same bits whichever kernel computes it, as long as
// the sums have. Whatever a multiplication and an addition could be fused to is written out.
#pragma once

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/numbers.cuh"

namespace mlc_native::kernels::cuda {

// Whether column c of y is made of two sums, those of rows c and c + n / 2 of the weight.
__device__ __host__ inline bool HasPairs(const GemvArgs& args) {
  return args.activates && args.activation.gated;
}

// Of y.
__device__ __host__ inline int64_t Columns(const GemvArgs& args) {
  return HasPairs(args) ? args.n / 2 : args.n;
}

template <typename T>
__device__ inline float WithBias(const GemvArgs& args, int64_t column, float sum) {
  return args.bias == nullptr ? sum : sum + ToFloat(static_cast<const T*>(args.bias)[column]);
}

// The sum of a row of x and a row of the weight.
template <typename T>
__device__ inline void StoreY(const GemvArgs& args, int64_t row, int64_t column, float sum) {
  const float value = WithBias<T>(args, column, sum);
  const int64_t at = row * args.ldy + column;
  if (args.float_output) {
    float* y = static_cast<float*>(args.y) + at;
    *y = args.accumulate ? *y + ToFloat(FromFloat<T>(value)) : value;
  } else {
    static_cast<T*>(args.y)[at] = FromFloat<T>(value);
  }
}

// With `activates`: the sum of this column, and where HasPairs that of column + n / 2. Both are
// rounded as if they had been stored, so the bits are those of a product and Activate.
template <typename T>
__device__ inline void StoreActivated(const GemvArgs& args, int64_t row, int64_t column, float sum,
                                      float other) {
  const auto rounded = [&](int64_t of, float value) {
    return ToFloat(FromFloat<T>(WithBias<T>(args, of, value)));
  };
  const float gate = rounded(column, sum);
  const float up = HasPairs(args) ? rounded(column + args.n / 2, other) : 0.0f;
  static_cast<T*>(args.y)[row * args.ldy + column] =
      FromFloat<T>(Activated(args.activation, gate, up));
}

}  // namespace mlc_native::kernels::cuda
