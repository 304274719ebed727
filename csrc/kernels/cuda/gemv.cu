// Gemv: products of up to 32 rows, which are bound by the bandwidth of the weights.
//
// A block is a GemvWorker. Few weight rows are divided into tiles of 8, so that all multiprocessors
// have work. Where there are more tiles than blocks at once, blocks walk over them, so that the
// loads do not pause where a tile ends.
//
// Bytes: the weights once, x from cache.
#include "kernels/cuda/gemv_worker.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {
inline namespace gemv_cu {

// Of more rows, BatchGemv is at least as fast on all GPUs that have it, and Gemv leaves them to it.
// So it does of 9 to 16 rows of rare formats.
template <typename Format>
inline constexpr int kRowsWithClusters = Format::kGroupBlocks == 0 || Format::kIsRare ? 8 : 16;

template <typename Format, int kTiles, int kHalves>
__global__ void __launch_bounds__(kGemvThreads, kTiles < 4 ? 2 : 1)
    GemvKernel(const __grid_constant__ GemvArgs args) {
  if constexpr (kLacksClusters || 8 * kTiles <= kRowsWithClusters<Format>) {
    using Worker = GemvWorker<Format, kTiles, kHalves>;
    __shared__ typename Worker::Sums shared;
    Worker(args).Run(shared);
  }
}

// Eight rows at most.
template <typename Format>
__global__ void __launch_bounds__(kGemvThreads, kGemvWalkers<Format>)
    GemvWalkKernel(const __grid_constant__ GemvArgs args) {
  using Worker = GemvWorker<Format, 1, 2, false, true>;
  __shared__ typename Worker::Sums shared[2];
  Worker(args).Run(shared);
}

// Without tensor cores: a warp per output.
__global__ void __launch_bounds__(kGemvThreads)
    FloatGemvKernel(const __grid_constant__ GemvArgs args) {
  WaitForPrevious();
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kGemvWarps + threadIdx.x / kWarp;
  const int64_t row = blockIdx.y;
  if (column >= args.n) return;
  const float* w = static_cast<const float*>(args.weight) + column * args.k;
  const float* x = static_cast<const float*>(args.x) + row * args.ldx;
  float sum = 0.0f;
  for (int64_t k = threadIdx.x % kWarp; k < args.k; k += kWarp) sum += w[k] * x[k];
  sum = ReduceWarp(sum, Plus());
  if (threadIdx.x % kWarp == 0) StoreY<float>(args, row, column, sum);
}

template <typename Format, int kTiles>
void LaunchForTiles(const GemvArgs& args, Stream stream) {
  const auto shape = [](int64_t blocks) -> LaunchShape {
    return {.grid = dim3(static_cast<unsigned>(blocks)), .threads = kGemvThreads};
  };
  const int64_t multiprocessors = NumMultiprocessors();
  if (args.n <= 16 * multiprocessors && !args.activates) {
    return Launch(GemvKernel<Format, kTiles, 1>,
                  shape(GemvWorker<Format, kTiles, 1>::NumTiles(args)), stream, args);
  }
  const int64_t tiles = GemvWorker<Format, kTiles, 2>::NumTiles(args);
  if constexpr (kTiles == 1 && Format::kWalks) {
    if (tiles > 2 * multiprocessors) {
      const int64_t walkers = kGemvWalkers<Format> * multiprocessors;
      return Launch(GemvWalkKernel<Format>, shape(tiles < walkers ? tiles : walkers), stream, args);
    }
  }
  Launch(GemvKernel<Format, kTiles, 2>, shape(tiles), stream, args);
}

template <typename Format>
void LaunchForRows(const GemvArgs& args, Stream stream) {
  if (args.m > kRowsWithClusters<Format> && !LacksClusters()) return BatchGemv(args, stream);
  if (args.m <= 8) return LaunchForTiles<Format, 1>(args, stream);
  if (args.m <= 16) return LaunchForTiles<Format, 2>(args, stream);
  LaunchForTiles<Format, 4>(args, stream);
}

template <typename T>
void LaunchForFormat(const GemvArgs& args, Stream stream) {
  WithGemvFormat<T>(args.format, args.dtype,
                    [&](auto tag) { LaunchForRows<typename decltype(tag)::Type>(args, stream); });
}

}  // namespace gemv_cu

void CheckActivation(const GemvArgs& args) {
  if (!args.activates) return;
  MLC_CHECK(args.dtype != DType::kFloat32 && !args.float_output && !args.accumulate);
  MLC_CHECK(args.activation.activation != Activation::kXielu);
  MLC_CHECK(!args.activation.gated || args.n % 2 == 0) << args.n;
}

void Gemv(const GemvArgs& args, Stream stream) {
  MLC_CHECK(args.m <= kMaxGemvRows && args.k % kVector == 0) << args.m << " x " << args.k;
  MLC_CHECK(args.float_output || !args.accumulate);
  CheckActivation(args);
  if (args.m == 0) return;
  if (args.normalizes) return NormGemv(args, stream);
  switch (args.dtype) {
    case DType::kBFloat16:
      return LaunchForFormat<BFloat16>(args, stream);
    case DType::kFloat16:
      return LaunchForFormat<Float16>(args, stream);
    case DType::kFloat32:
      MLC_CHECK(args.format == WeightFormat::kFloat32)
          << "format " << static_cast<int>(args.format);
      return Launch(FloatGemvKernel,
                    {.grid = dim3(static_cast<unsigned>((args.n + kGemvWarps - 1) / kGemvWarps),
                                  static_cast<unsigned>(args.m)),
                     .threads = kGemvThreads},
                    stream, args);
  }
}

}  // namespace mlc_native::kernels::cuda
