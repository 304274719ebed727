// GroupedGemv: the products of a mixture of experts, each of the rows that have chosen the expert,
// or those of all heads of latent attention, each of all rows.
//
// A block is a GemvWorker for 16 rows of one expert's weight; it takes the rows of the expert's
// group up to 8 kTiles at a time. The grid has as many groups as there can be, so a captured launch
// fits any choice, and blocks of groups that are empty end at once.
//
// Bytes: the weights of the chosen experts, once where no expert has more than 32 rows; further
// rows find them in the L2 cache. x from cache.
#include "kernels/cuda/experts.h"
#include "kernels/cuda/gemv_worker.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {
inline namespace grouped_gemv_cu {

constexpr int kHalves = 2;

__device__ inline const void* Behind(const void* first, int64_t bytes) {
  return first == nullptr ? nullptr : static_cast<const char*>(first) + bytes;
}

// Of all rows: matrix blockIdx.y.
__device__ inline ExpertGroup GroupOf(const GroupedGemvArgs& args) {
  if (args.groups != nullptr) return args.groups[blockIdx.y];
  return {.expert = static_cast<int32_t>(blockIdx.y),
          .begin = 0,
          .end = static_cast<int32_t>(args.first.m)};
}

// The product of a group, whose rows of y begin at its first place.
template <typename T>
__device__ inline GemvArgs ProductOf(const GroupedGemvArgs& args, const ExpertGroup& group) {
  GemvArgs product = args.first;
  product.weight = Behind(product.weight, group.expert * args.weight_stride);
  product.bias = Behind(product.bias, group.expert * args.bias_stride);
  if (args.groups == nullptr) {
    product.x = static_cast<const T*>(product.x) + group.expert * args.x_step;
    product.y = static_cast<T*>(product.y) + group.expert * args.y_step;
    return product;
  }
  product.y = static_cast<T*>(product.y) + group.begin * product.ldy;
  if (args.rows == nullptr) {
    product.x = static_cast<const T*>(product.x) + group.begin * product.ldx;
  }
  product.m = group.end - group.begin;
  return product;
}

template <typename Format, int kTiles>
__global__ void __launch_bounds__(kGemvThreads, kTiles < 4 ? 2 : 1)
    GroupedGemvKernel(const __grid_constant__ GroupedGemvArgs args) {
  WaitForPrevious();
  using T = typename Format::Element;
  using Worker = GemvWorker<Format, kTiles, kHalves, true>;
  constexpr int kRows = 8 * kTiles;
  __shared__ typename Worker::Sums shared;
  const ExpertGroup group = GroupOf(args);
  const GemvArgs product = ProductOf<T>(args, group);
  for (int64_t row = 0; row < product.m; row += kRows) {
    GemvArgs part = product;
    part.m = product.m - row < kRows ? product.m - row : kRows;
    part.y = static_cast<T*>(product.y) + row * product.ldy;
    const int32_t* rows = nullptr;
    if (args.rows == nullptr) {
      part.x = static_cast<const T*>(product.x) + row * product.ldx;
    } else {
      rows = args.rows + group.begin + row;
    }
    Worker(part, rows).Run(shared);
    __syncthreads();  // shared memory goes to the next rows
  }
}

// Without tensor cores: a warp per column of a group.
__global__ void __launch_bounds__(kGemvThreads)
    FloatGroupedGemvKernel(const __grid_constant__ GroupedGemvArgs args) {
  WaitForPrevious();
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kGemvWarps + threadIdx.x / kWarp;
  if (column >= args.first.n) return;
  const ExpertGroup group = GroupOf(args);
  const GemvArgs product = ProductOf<float>(args, group);
  const float* w = static_cast<const float*>(product.weight) + column * product.k;
  for (int64_t row = 0; row < product.m; ++row) {
    const int64_t from = args.rows == nullptr ? row : args.rows[group.begin + row];
    const float* x = static_cast<const float*>(product.x) + from * product.ldx;
    float sum = 0.0f;
    for (int64_t k = threadIdx.x % kWarp; k < product.k; k += kWarp) sum += w[k] * x[k];
    sum = ReduceWarp(sum, Plus());
    if (threadIdx.x % kWarp == 0) StoreY<float>(product, row, column, sum);
  }
}

// A block has so many columns of y.
LaunchShape ShapeOf(const GroupedGemvArgs& args, int64_t columns) {
  return {.grid = dim3(static_cast<unsigned>((Columns(args.first) + columns - 1) / columns),
                       static_cast<unsigned>(args.num_groups)),
          .threads = kGemvThreads};
}

template <typename T>
void LaunchForFormat(const GroupedGemvArgs& args, Stream stream) {
  const LaunchShape shape = ShapeOf(args, HasPairs(args.first) ? 8 : 8 * kHalves);
  WithGemvFormat<T>(args.first.format, args.first.dtype, [&](auto tag) {
    using Format = typename decltype(tag)::Type;
    if (args.first.m <= 8) return Launch(GroupedGemvKernel<Format, 1>, shape, stream, args);
    Launch(GroupedGemvKernel<Format, 4>, shape, stream, args);
  });
}

}  // namespace grouped_gemv_cu

void GroupedGemv(const GroupedGemvArgs& args, Stream stream) {
  const GemvArgs& first = args.first;
  MLC_CHECK(first.k % kVector == 0 && !first.float_output && !first.accumulate && !first.normalizes)
      << first.k;
  CheckActivation(first);
  if (args.num_groups == 0) return;
  switch (first.dtype) {
    case DType::kBFloat16:
      return LaunchForFormat<BFloat16>(args, stream);
    case DType::kFloat16:
      return LaunchForFormat<Float16>(args, stream);
    case DType::kFloat32:
      MLC_CHECK(first.format == WeightFormat::kFloat32)
          << "format " << static_cast<int>(first.format);
      return Launch(FloatGroupedGemvKernel, ShapeOf(args, kGemvWarps), stream, args);
  }
}

}  // namespace mlc_native::kernels::cuda
