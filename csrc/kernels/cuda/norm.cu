// AddNorm, Normalize: one block per row, which stays in registers between the sums. Moves 8 bytes
// per element of the residual, and 2 per element of x and of y (4 when x is normalized in place).
#include "kernels/cuda/norm_row.cuh"

namespace mlc_native::kernels::cuda {
inline namespace norm_cu {

template <typename T, int kVectors>
__global__ void __launch_bounds__(kNormThreads)
    AddNormKernel(const __grid_constant__ AddNormArgs args) {
  __shared__ float post_sums[kNormThreads / kWarp];
  __shared__ float pre_sums[kNormThreads / kWarp];
  __shared__ float post_means[kNormThreads / kWarp];
  __shared__ float pre_means[kNormThreads / kWarp];
  using Part = RowPart<kVectors>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * args.dim;
  float* residual = args.residual + row;
  const Parameter<T, kVectors> post_weight(args.post_weight, args.dim);
  const Parameter<T, kVectors> pre_weight(args.pre_weight, args.dim);
  WaitForPrevious();
  Part sum{};
  sum.Load(residual, args.dim);
  if (args.x != nullptr) {
    const T* x = static_cast<const T*>(args.x) + row;
    Part added{};
    added.Load(x, args.dim);
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
__global__ void __launch_bounds__(kNormThreads)
    NormalizeKernel(const __grid_constant__ NormalizeArgs args) {
  __shared__ float sums[kNormThreads / kWarp];
  T* x = static_cast<T*>(args.x) + static_cast<int64_t>(blockIdx.x) * args.ld;
  const Parameter<T, kVectors> weight(args.weight, args.dim);
  WaitForPrevious();
  NormalizeRow(x, weight, args.weight_offset, args.eps, args.dim, x, sums);
}

// Calls launch(shape, vectors of a thread, type) for rows of `dim`; the last two as constants. Of
// the largest rows, and of float32, which is for comparisons, vectors may be unused.
template <typename F>
void ForRows(DType dtype, int64_t m, int64_t dim, const F& launch) {
  MLC_CHECK(dim % kVector == 0 && dim > 0 && dim <= kMaxNormDim) << dim;
  if (m == 0) return;
  const auto vectors = static_cast<unsigned>(dim / kVector);
  const unsigned threads =
      vectors < kNormThreads ? (vectors + kWarp - 1) / kWarp * kWarp : kNormThreads;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(m)), .threads = threads};
  WithActivationType(dtype, [&](auto tag) {
    if constexpr (sizeof(typename decltype(tag)::Type) == 2) {
      if (vectors <= kNormThreads) return launch(shape, std::integral_constant<int, 1>(), tag);
      if (vectors <= 2 * kNormThreads) return launch(shape, std::integral_constant<int, 2>(), tag);
    }
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
