// BatchGemv: products of 9 to 128 rows with the bits of Gemv, where the GPU has clusters.
//
// A block is a BatchWorker, of 64 rows of the weight. The more blocks share the k of a product, the
// less of x does each read, but the more sums go between them: few splits are enough where there
// are blocks for all multiprocessors.
//
// Bytes: the weights once (for each 64 rows of x, the second time from cache). From the cache, x
// once for each tile of weight rows. Between the blocks of a cluster, the sums of eight chains.
#include "kernels/cuda/batch_worker.cuh"

namespace mlc_native::kernels::cuda {
inline namespace batch_gemv_cu {

constexpr int kBatchWarps = 4;

template <typename Format, typename Shape, int kBlocks>
__global__ void __launch_bounds__(Shape::kThreads, kBlocks)
    BatchKernel(const __grid_constant__ GemvArgs args) {
  if constexpr (kHasClusters) {
    const auto block = static_cast<int>(blockIdx.x);
    BatchWorker<Format, Shape>(args, block / Shape::kSplits, block % Shape::kSplits,
                               static_cast<int>(blockIdx.y) * Shape::kXRows)
        .Run();
  }
}

int64_t NumTiles(const GemvArgs& args) {
  const int64_t columns = HasPairs(args) ? 8 * kBatchWarps : 16 * kBatchWarps;
  return (Columns(args) + columns - 1) / columns;
}

// kBlocks: of a multiprocessor.
template <typename Format, int kTiles, int kSplits, int kStages, int kBlocks>
void LaunchWith(const GemvArgs& args, Stream stream) {
  using Shape = BatchShape<kBatchWarps, kTiles, kSplits, kStages>;
  Launch(BatchKernel<Format, Shape, kBlocks>,
         {.grid = dim3(static_cast<unsigned>(NumTiles(args) * kSplits),
                       static_cast<unsigned>((args.m + Shape::kXRows - 1) / Shape::kXRows)),
          .threads = Shape::kThreads,
          .shared_bytes = BatchWorker<Format, Shape>::SharedBytes(),
          .cluster = kSplits},
         stream, args);
}

// Measured on an H100.
template <typename Format>
void LaunchForRows(const GemvArgs& args, Stream stream) {
  const int64_t multiprocessors = NumMultiprocessors();
  const int64_t tiles = NumTiles(args);
  const bool has_few_tiles = 4 * tiles < multiprocessors;
  const bool is_long = args.k >= 32 * kGemvStep;
  if constexpr (Format::kGroupBlocks == 0) {
    // All blocks run at once, and on nearly all multiprocessors.
    const bool two = is_long && 10 * 2 * tiles >= 9 * multiprocessors && tiles <= multiprocessors;
    if (args.m <= 16) {
      if (has_few_tiles) return LaunchWith<Format, 2, 8, 3, 3>(args, stream);
      if (two) return LaunchWith<Format, 2, 2, 4, 2>(args, stream);
      return LaunchWith<Format, 2, 4, 3, 3>(args, stream);
    }
    if (args.m <= 32) {
      if (has_few_tiles) return LaunchWith<Format, 4, 8, 3, 3>(args, stream);
      if (two) return LaunchWith<Format, 4, 2, 4, 2>(args, stream);
      return LaunchWith<Format, 4, 4, 3, 3>(args, stream);
    }
    if (has_few_tiles) return LaunchWith<Format, 8, 8, 3, 2>(args, stream);
    return LaunchWith<Format, 8, 4, 2, 3>(args, stream);
  } else {
    if constexpr (!Format::kIsRare) {
      if (!has_few_tiles && args.k < 64 * kGemvStep) {
        if (args.m <= 32) return LaunchWith<Format, 4, 4, 4, 3>(args, stream);
        return LaunchWith<Format, 8, 4, 4, 2>(args, stream);
      }
    }
    if (args.m <= 32) return LaunchWith<Format, 4, 8, 4, 3>(args, stream);
    LaunchWith<Format, 8, 8, 4, 2>(args, stream);
  }
}

}  // namespace batch_gemv_cu

bool HasBatchGemv(const GemvArgs& args) {
  return args.m <= kMaxBatchRows && args.dtype != DType::kFloat32 && HasClusters();
}

void BatchGemv(const GemvArgs& args, Stream stream) {
  MLC_CHECK(HasBatchGemv(args) && args.k % kVector == 0) << args.m << " x " << args.k;
  MLC_CHECK((args.float_output || !args.accumulate) && !args.normalizes);
  CheckActivation(args);
  if (args.m == 0) return;
  const auto launch = [&](auto tag) {
    WithGemvFormat<typename decltype(tag)::Type>(args.format, args.dtype, [&](auto format) {
      LaunchForRows<typename decltype(format)::Type>(args, stream);
    });
  };
  args.dtype == DType::kBFloat16 ? launch(TypeTag<BFloat16>()) : launch(TypeTag<Float16>());
}

}  // namespace mlc_native::kernels::cuda
