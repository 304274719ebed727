// A row that is normalized: what the threads of a block hold of it, and the sums over it.
//
// Norms and the products that normalize their rows (gemv_worker.cuh) have the same bits: a thread
// adds the squares of its columns in their order, and the block adds what its warps have. Threads
// and vectors behind the end of a row add zeros.
#pragma once

#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {

// Of a block, or fewer, where each has one vector at most.
inline constexpr int kNormThreads = 256;
template <int kVectors>
inline constexpr int kThreadsOfRow = kVectors <= 2 ? kNormThreads : 2 * kNormThreads;

// A thread's vectors of a row: every kThreadsOfRow-th one.
template <int kVectors>
struct RowPart {
  float values[kVectors][kVector];

  __device__ static int64_t Column(int i) {
    return (static_cast<int64_t>(i) * kThreadsOfRow<kVectors> + threadIdx.x) * kVector;
  }

  // Requires: the values are zeros, which they stay behind the end of the row.
  template <typename T>
  __device__ void Load(const T* row, int64_t dim) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (Column(i) < dim) LoadFloats(row + Column(i), values[i]);
    }
  }

  // Subtracts the mean of the whole row. `shared` as in ReduceBlock.
  __device__ void Centre(int64_t dim, float* shared) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
#pragma unroll
      for (int j = 0; j < kVector; ++j) sum += values[i][j];
    }
    const float mean = ReduceBlock(sum, Plus(), shared) / static_cast<float>(dim);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (Column(i) >= dim) continue;
#pragma unroll
      for (int j = 0; j < kVector; ++j) values[i][j] -= mean;
    }
  }

  // The sum of the squares of the whole row. `shared` and kWarps as in ReduceBlock.
  template <int kWarps = 0>
  __device__ float SquareSum(float* shared) const {
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
#pragma unroll
      for (int j = 0; j < kVector; ++j) squares = fmaf(values[i][j], values[i][j], squares);
    }
    return ReduceBlock<kWarps>(squares, Plus(), shared);
  }
  // 1 / sqrt(mean of squares + eps) of the whole row.
  template <int kWarps = 0>
  __device__ float InverseNorm(int64_t dim, float eps, float* shared) const {
    return ReciprocalSqrt(SquareSum<kWarps>(shared) / static_cast<float>(dim) + eps);
  }
};

// A thread's part of a vector of the model, loaded before it is needed. Null: there is none.
template <typename T, int kVectors>
class Parameter {
 public:
  __device__ Parameter(const void* data, int64_t dim) : is_there_(data != nullptr) {
    if (!is_there_) return;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int64_t column = min(RowPart<kVectors>::Column(i), dim - kVector);
      vectors_[i] = LoadRaw(static_cast<const T*>(data) + column);
    }
  }
  __device__ explicit operator bool() const { return is_there_; }

  // x[j] *= scale * (this[j] + offset)
  __device__ void Scale(int i, float offset, float scale, float (&x)[kVector]) const {
    if (!is_there_) return;
    float w[kVector];
    ToFloats(vectors_[i], w);
#pragma unroll
    for (int j = 0; j < kVector; ++j) x[j] *= scale * (w[j] + offset);
  }
  // x[j] += this[j]
  __device__ void Add(int i, float (&x)[kVector]) const {
    if (!is_there_) return;
    float b[kVector];
    ToFloats(vectors_[i], b);
#pragma unroll
    for (int j = 0; j < kVector; ++j) x[j] += b[j];
  }

 private:
  bool is_there_;
  RawVector8<T> vectors_[kVectors];
};

// y = row * scale * weight
template <typename T, typename Y, int kVectors>
__device__ inline void StoreScaled(RowPart<kVectors>& row, const Parameter<T, kVectors>& weight,
                                   float offset, float scale, int64_t dim, Y* y) {
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int64_t column = row.Column(i);
    if (column >= dim) continue;
    weight.Scale(i, offset, scale, row.values[i]);
    StoreFloats(y + column, row.values[i]);
  }
}

// y = norm(x, weight), of one row. `shared` and kWarps as in ReduceBlock.
template <int kWarps = 0, typename X, typename T, int kVectors>
__device__ inline void NormalizeRow(const X* x, const Parameter<T, kVectors>& weight, float offset,
                                    float eps, int64_t dim, T* y, float* shared) {
  RowPart<kVectors> row{};
  row.Load(x, dim);
  StoreScaled(row, weight, offset, row.template InverseNorm<kWarps>(dim, eps, shared), dim, y);
}

}  // namespace mlc_native::kernels::cuda
