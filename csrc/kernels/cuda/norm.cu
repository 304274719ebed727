// AddNorm, Normalize: one block per row, which stays in registers between the sums. Moves 8 bytes
// per element of the residual, and 2 per element of x and of y (4 when x is normalized in place).
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {
inline namespace norm_cu {

constexpr int kThreads = 256;

// A thread's vectors of a row: every blockDim.x-th one.
template <int kVectors>
struct RowPart {
  float values[kVectors][kVector];

  __device__ static int64_t Column(int i) {
    return (static_cast<int64_t>(i) * blockDim.x + threadIdx.x) * kVector;
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

  // 1 / sqrt(mean of squares + eps) of the whole row. `shared` as in ReduceBlock.
  __device__ float InverseNorm(int64_t dim, float eps, float* shared) const {
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
#pragma unroll
      for (int j = 0; j < kVector; ++j) squares += values[i][j] * values[i][j];
    }
    squares = ReduceBlock(squares, Plus(), shared);
    return ReciprocalSqrt(squares / static_cast<float>(dim) + eps);
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

template <typename T, int kVectors>
__global__ void __launch_bounds__(kThreads)
    AddNormKernel(const __grid_constant__ AddNormArgs args) {
  __shared__ float post_sums[kThreads / kWarp];
  __shared__ float pre_sums[kThreads / kWarp];
  __shared__ float post_means[kThreads / kWarp];
  __shared__ float pre_means[kThreads / kWarp];
  using Part = RowPart<kVectors>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * args.dim;
  float* residual = args.residual + row;
  const Parameter<T, kVectors> post_weight(args.post_weight, args.dim);
  const Parameter<T, kVectors> pre_weight(args.pre_weight, args.dim);
  WaitForPrevious();
  Part sum{};
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (Part::Column(i) < args.dim) LoadFloats(residual + Part::Column(i), sum.values[i]);
  }
  if (args.x != nullptr) {
    const T* x = static_cast<const T*>(args.x) + row;
    Part added{};
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (Part::Column(i) < args.dim) LoadFloats(x + Part::Column(i), added.values[i]);
    }
    const Parameter<T, kVectors> bias(args.post_bias, args.dim);
    if (post_weight && args.subtract_mean) added.Centre(args.dim, post_means);
    const float scale = post_weight ? added.InverseNorm(args.dim, args.eps, post_sums) : 1.0f;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int64_t column = Part::Column(i);
      if (column >= args.dim) continue;
      post_weight.Scale(i, args.weight_offset, scale, added.values[i]);
      bias.Add(i, added.values[i]);
#pragma unroll
      for (int j = 0; j < kVector; ++j) sum.values[i][j] += added.values[i][j];
      StoreFloats(residual + column, sum.values[i]);
    }
  }
  if (args.y == nullptr) return;
  const Parameter<T, kVectors> bias(args.pre_bias, args.dim);
  if (pre_weight && args.subtract_mean) sum.Centre(args.dim, pre_means);
  const float scale = pre_weight ? sum.InverseNorm(args.dim, args.eps, pre_sums) : 1.0f;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int64_t column = Part::Column(i);
    if (column >= args.dim) continue;
    pre_weight.Scale(i, args.weight_offset, scale, sum.values[i]);
    bias.Add(i, sum.values[i]);
    StoreFloats(static_cast<T*>(args.y) + row + column, sum.values[i]);
  }
}

template <typename T, int kVectors>
__global__ void __launch_bounds__(kThreads)
    NormalizeKernel(const __grid_constant__ NormalizeArgs args) {
  __shared__ float sums[kThreads / kWarp];
  using Part = RowPart<kVectors>;
  T* x = static_cast<T*>(args.x) + static_cast<int64_t>(blockIdx.x) * args.ld;
  const Parameter<T, kVectors> weight(args.weight, args.dim);
  WaitForPrevious();
  Part row{};
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (Part::Column(i) < args.dim) LoadFloats(x + Part::Column(i), row.values[i]);
  }
  const float scale = row.InverseNorm(args.dim, args.eps, sums);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int64_t column = Part::Column(i);
    if (column >= args.dim) continue;
    weight.Scale(i, args.weight_offset, scale, row.values[i]);
    StoreFloats(x + column, row.values[i]);
  }
}

// Calls launch(shape, vectors of a thread, type) for rows of `dim`; the last two as constants.
template <typename F>
void ForRows(DType dtype, int64_t m, int64_t dim, const F& launch) {
  MLC_CHECK(dim % kVector == 0 && dim > 0 && dim <= kMaxNormDim) << dim;
  if (m == 0) return;
  const auto vectors = static_cast<unsigned>(dim / kVector);
  const unsigned threads = vectors < kThreads ? (vectors + kWarp - 1) / kWarp * kWarp : kThreads;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(m)), .threads = threads};
  WithActivationType(dtype, [&](auto tag) {
    if (vectors <= kThreads) return launch(shape, std::integral_constant<int, 1>(), tag);
    if (vectors <= 2 * kThreads) return launch(shape, std::integral_constant<int, 2>(), tag);
    if (vectors <= 4 * kThreads) return launch(shape, std::integral_constant<int, 4>(), tag);
    launch(shape, std::integral_constant<int, 8>(), tag);
  });
}

}  // namespace norm_cu

void AddNorm(const AddNormArgs& args, Stream stream) {
  ForRows(args.dtype, args.m, args.dim, [&](const LaunchShape& shape, auto vectors, auto tag) {
    Launch(AddNormKernel<typename decltype(tag)::Type, vectors()>, shape, stream, args);
  });
}

void Normalize(const NormalizeArgs& args, Stream stream) {
  ForRows(args.dtype, args.m, args.dim, [&](const LaunchShape& shape, auto vectors, auto tag) {
    Launch(NormalizeKernel<typename decltype(tag)::Type, vectors()>, shape, stream, args);
  });
}

}  // namespace mlc_native::kernels::cuda
