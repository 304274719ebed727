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

template <typename T, int kCount>
__device__ inline void AddBias(const GemvArgs& args, int64_t column, int count,
                               float (&sums)[kCount]) {
  if (args.bias == nullptr) return;
  const T* bias = static_cast<const T*>(args.bias) + column;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i < count) sums[i] += ToFloat(bias[i]);
  }
}

template <typename T, int kCount>
__device__ inline void StoreRounded(const GemvArgs& args, int64_t row, int64_t column, int count,
                                    const float (&values)[kCount]) {
  T* y = static_cast<T*>(args.y) + row * args.ldy + column;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i < count) y[i] = FromFloat<T>(values[i]);
  }
}

template <typename T, int kCount>
__device__ inline void Round(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = ToFloat(FromFloat<T>(values[i]));
}

// Columns of a row of y, of which the first `count` are stored, from the sums of the row of x and
// rows of the weight. Without `activates`.
template <typename T, int kCount>
__device__ inline void StoreY(const GemvArgs& args, int64_t row, int64_t column, int count,
                              float (&sums)[kCount]) {
  AddBias<T>(args, column, count, sums);
  if (!args.float_output) return StoreRounded<T>(args, row, column, count, sums);
  float* y = static_cast<float*>(args.y) + row * args.ldy + column;
  if (args.accumulate) Round<T>(sums);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i < count) y[i] = args.accumulate ? y[i] + sums[i] : sums[i];
  }
}
template <typename T>
__device__ inline void StoreY(const GemvArgs& args, int64_t row, int64_t column, float sum) {
  float sums[1] = {sum};
  StoreY<T>(args, row, column, 1, sums);
}

// With `activates`: where HasPairs, `others` are the sums of `column` + n / 2 and behind. Both are
// rounded as if they had been stored, so the bits are those of a product and Activate.
template <typename T, int kCount>
__device__ inline void StoreActivated(const GemvArgs& args, int64_t row, int64_t column, int count,
                                      float (&sums)[kCount], float (&others)[kCount]) {
  AddBias<T>(args, column, count, sums);
  Round<T>(sums);
  if (HasPairs(args)) {
    AddBias<T>(args, column + args.n / 2, count, others);
    Round<T>(others);
  }
  Activated(args.activation, sums, others);
  StoreRounded<T>(args, row, column, count, sums);
}
template <typename T>
__device__ inline void StoreActivated(const GemvArgs& args, int64_t row, int64_t column, float sum,
                                      float other) {
  float sums[1] = {sum};
  float others[1] = {other};
  StoreActivated<T>(args, row, column, 1, sums, others);
}

}  // namespace mlc_native::kernels::cuda
