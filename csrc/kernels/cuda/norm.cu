// AddNorm, Normalize: one block per row, which stays in registers between the sums. Moves 8 bytes
// per element of the residual, and 2 per element of x and of y (4 when x is normalized in place).
// SquareSums: one block per row and part, reads 2 bytes per element.
#include "kernels/cuda/norm_row.cuh"
#include "kernels/cuda/rowwise.h"

namespace mlc_native::kernels::cuda {
inline namespace norm_cu {

template <typename T, int kVectors, bool kScales, bool kKeeps>
__device__ inline void AddAndNormalizeRow(const AddNormArgs& args) {
  constexpr int kWarps = kThreadsOfRow<kVectors> / kWarp;
  __shared__ float post_sums[kWarps];
  __shared__ float pre_sums[kWarps];
  __shared__ float post_means[kWarps];
  __shared__ float pre_means[kWarps];
  using Part = RowPart<kVectors>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * args.dim;
  float* residual = args.residual + row;
  const Parameter<T, kVectors> post_weight(args.post_weight, args.dim);
  const Parameter<T, kVectors> pre_weight(args.pre_weight, args.dim);
  const float factor = kScales ? ToFloat(*static_cast<const T*>(args.scale)) : 1.0f;
  WaitForPrevious();
  Part sum{};
  sum.Load(residual, args.dim);
  if (args.x != nullptr) {
    const T* x = static_cast<const T*>(args.x) + row;
    Part added{};
    added.Load(x, args.dim);
    const Parameter<T, kVectors> bias(args.post_bias, args.dim);
    if (post_weight && args.subtract_mean) added.Centre(args.dim, post_means);
    const float eps = args.post_eps > 0.0f ? args.post_eps : args.eps;
    const float scale = post_weight ? added.InverseNorm(args.dim, eps, post_sums) : 1.0f;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int64_t column = Part::Column(i);
      if (column >= args.dim) continue;
      post_weight.Scale(i, args.weight_offset, scale, added.values[i]);
      bias.Add(i, added.values[i]);
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        sum.values[i][j] = factor * (sum.values[i][j] + added.values[i][j]);
      }
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
    if constexpr (kKeeps) StoreFloats(residual + column, sum.values[i]);
    StoreFloats(static_cast<T*>(args.y) + row + column, sum.values[i]);
  }
}

template <typename T, int kVectors>
__global__ void __launch_bounds__(kThreadsOfRow<kVectors>)
    AddNormKernel(const __grid_constant__ AddNormArgs args) {
  AddAndNormalizeRow<T, kVectors, false, false>(args);
}

template <typename T, int kVectors>
__global__ void __launch_bounds__(kThreadsOfRow<kVectors>)
    KeptNormKernel(const __grid_constant__ AddNormArgs args) {
  AddAndNormalizeRow<T, kVectors, false, true>(args);
}

template <typename T, int kVectors>
__global__ void __launch_bounds__(kThreadsOfRow<kVectors>)
    ScaledAddNormKernel(const __grid_constant__ AddNormArgs args) {
  AddAndNormalizeRow<T, kVectors, true, false>(args);
}

template <typename T, int kVectors>
__global__ void __launch_bounds__(kThreadsOfRow<kVectors>)
    NormalizeKernel(const __grid_constant__ NormalizeArgs args) {
  __shared__ float sums[kThreadsOfRow<kVectors> / kWarp];
  T* x = static_cast<T*>(args.x) + static_cast<int64_t>(blockIdx.x) * args.ld;
  const Parameter<T, kVectors> weight(args.weight, args.dim);
  WaitForPrevious();
  RowPart<kVectors> row{};
  row.Load(x, args.dim);
  float scale;
  if (args.square_sums == nullptr) {
    scale = row.InverseNorm(args.dim, args.eps, sums);
  } else {
    const float squares = args.square_sums[2 * static_cast<int64_t>(blockIdx.x)];
    scale = ReciprocalSqrt(squares / static_cast<float>(args.whole_dim) + args.eps);
  }
  StoreScaled(row, weight, args.weight_offset, scale, args.dim, x);
}

template <typename T>
__global__ void __launch_bounds__(kNormThreads)
    SquareSumsKernel(const __grid_constant__ SquareSumsArgs args) {
  __shared__ float shared[kNormThreads / kWarp];
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  const unsigned part = blockIdx.y;
  const T* x = static_cast<const T*>(args.x) + row * args.ld + (part == 0 ? 0 : args.dims[0]);
  float squares = 0.0f;
  for (int64_t i = threadIdx.x * kVector; i < args.dims[part]; i += kNormThreads * kVector) {
    float values[kVector];
    LoadFloats(x + i, values);
#pragma unroll
    for (int j = 0; j < kVector; ++j) squares = fmaf(values[j], values[j], squares);
  }
  squares = ReduceBlock(squares, Plus(), shared);
  if (threadIdx.x == 0) args.sums[2 * row + part] = squares;
}

// Calls launch(shape, vectors of a thread, type) for rows of `dim`; the last two as constants. Of
// the largest rows, and of float32, which is for comparisons, vectors may be unused.
template <typename F>
void ForRows(DType dtype, int64_t m, int64_t dim, const F& launch) {
  MLC_CHECK(dim % kVector == 0 && dim > 0 && dim <= kMaxNormDim) << dim;
  if (m == 0) return;
  const auto vectors = static_cast<unsigned>(dim / kVector);
  const auto launch_with = [&](auto of_thread, auto tag) {
    constexpr unsigned kThreads = kThreadsOfRow<of_thread()>;
    const unsigned threads = vectors < kThreads ? (vectors + kWarp - 1) / kWarp * kWarp : kThreads;
    launch(LaunchShape{.grid = dim3(static_cast<unsigned>(m)), .threads = threads}, of_thread, tag);
  };
  WithActivationType(dtype, [&](auto tag) {
    if constexpr (sizeof(typename decltype(tag)::Type) == 2) {
      if (vectors <= kNormThreads) return launch_with(std::integral_constant<int, 1>(), tag);
      if (vectors <= 2 * kNormThreads) return launch_with(std::integral_constant<int, 2>(), tag);
    }
    launch_with(std::integral_constant<int, 4>(), tag);
  });
}

}  // namespace norm_cu

void AddNorm(const AddNormArgs& args, Stream stream) {
  MLC_CHECK(args.scale == nullptr || (args.x != nullptr && !args.keeps));
  ForRows(args.dtype, args.m, args.dim, [&](const LaunchShape& shape, auto vectors, auto tag) {
    using T = typename decltype(tag)::Type;
    if (args.keeps) return Launch(KeptNormKernel<T, vectors()>, shape, stream, args);
    if (args.scale == nullptr) return Launch(AddNormKernel<T, vectors()>, shape, stream, args);
    Launch(ScaledAddNormKernel<T, vectors()>, shape, stream, args);
  });
}

void SquareSums(const SquareSumsArgs& args, Stream stream) {
  MLC_CHECK(args.dims[0] % kVector == 0 && args.dims[1] % kVector == 0) << args.dims[0];
  if (args.m == 0) return;
  WithActivationType(args.dtype, [&](auto tag) {
    Launch(SquareSumsKernel<typename decltype(tag)::Type>,
           {.grid = dim3(static_cast<unsigned>(args.m), 2), .threads = kNormThreads}, stream, args);
  });
}

void Normalize(const NormalizeArgs& args, Stream stream) {
  ForRows(args.dtype, args.m, args.dim, [&](const LaunchShape& shape, auto vectors, auto tag) {
    Launch(NormalizeKernel<typename decltype(tag)::Type, vectors()>, shape, stream, args);
  });
}

}  // namespace mlc_native::kernels::cuda
