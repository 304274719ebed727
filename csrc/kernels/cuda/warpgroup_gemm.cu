// WarpgroupGemm: products of many rows with the bits of Gemv, on the tensor cores of Hopper.
//
// A block is a WarpgroupWorker. Blocks are numbered so that those that run at the same time share
// weights and rows of x, as in gemm.cu. Cost chooses the tile.
//
// Bytes: the weights once for each band from memory. From the cache, the weights once for each tile
// of x, and x once for each tile of the weights. Operations: 2 m n k.
#include "kernels/cuda/warpgroup_worker.cuh"

namespace mlc_native::kernels::cuda {
inline namespace warpgroup_gemm_cu {

constexpr int kBand = 8;

// Rows of the weight and of x, blocks of a multiprocessor, and the time of a stage of 64 k on an
// H100, in ns: how long it takes at least, and for each block of a multiprocessor.
struct LargeTile : WarpgroupShape<2, 16, 6> {  // 128 and 128
  static constexpr int kBlocks = 1;
  static constexpr int kLatency = 580;
  static constexpr int kWork = 620;
};
struct WideTile : WarpgroupShape<2, 8, 8> {  // 128 and 64
  static constexpr int kBlocks = 1;
  static constexpr int kLatency = 450;
  static constexpr int kWork = 470;
};
struct MiddleTile : WarpgroupShape<1, 8, 6> {  // 64 and 64
  static constexpr int kBlocks = 2;
  static constexpr int kLatency = 340;
  static constexpr int kWork = 257;
};
struct SmallTile : WarpgroupShape<1, 4, 8> {  // 64 and 32
  static constexpr int kBlocks = 2;
  static constexpr int kLatency = 260;
  static constexpr int kWork = 195;
};

struct WarpgroupArgs {
  GemvArgs product;
  int weight_tiles;
  int x_tiles;
};

template <typename T, typename Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    WarpgroupKernel(const __grid_constant__ WarpgroupArgs args) {
  if constexpr (kHasWarpgroups) {
    const int band = static_cast<int>(blockIdx.x) / (kBand * args.weight_tiles);
    const int place = static_cast<int>(blockIdx.x) % (kBand * args.weight_tiles);
    const int width = min(kBand, args.x_tiles - band * kBand);
    WarpgroupWorker<T, Tile>(args.product, place / width * Tile::kWeightRows,
                             (band * kBand + place % width) * Tile::kXRows)
        .Run();
  }
}

int TilesOf(int64_t rows, int of_tile) { return static_cast<int>((rows + of_tile - 1) / of_tile); }

template <typename Tile>
int64_t NumBlocks(const GemvArgs& args) {
  return int64_t{TilesOf(args.n, Tile::kWeightRows)} * TilesOf(args.m, Tile::kXRows);
}

// Of a stage.
template <typename Tile>
int64_t Cost(const GemvArgs& args) {
  const int64_t multiprocessors = NumMultiprocessors();
  const int64_t blocks = (NumBlocks<Tile>(args) + multiprocessors - 1) / multiprocessors;
  return max(int64_t{Tile::kLatency}, blocks * Tile::kWork);
}

template <typename T, typename Tile>
void LaunchForTile(const GemvArgs& args, Stream stream) {
  static_assert(WarpgroupWorker<T, Tile>::SharedBytes() <= kMostSharedBytesOf90);
  Launch(WarpgroupKernel<T, Tile>,
         {.grid = dim3(static_cast<unsigned>(NumBlocks<Tile>(args))),
          .threads = Tile::kThreads,
          .shared_bytes = WarpgroupWorker<T, Tile>::SharedBytes(),
          .is_of_90 = true},
         stream,
         WarpgroupArgs{.product = args,
                       .weight_tiles = TilesOf(args.n, Tile::kWeightRows),
                       .x_tiles = TilesOf(args.m, Tile::kXRows)});
}

template <typename T>
void LaunchForType(const GemvArgs& args, Stream stream) {
  const int64_t large = Cost<LargeTile>(args);
  const int64_t wide = Cost<WideTile>(args);
  const int64_t middle = Cost<MiddleTile>(args);
  const int64_t small = Cost<SmallTile>(args);
  const int64_t least = min(min(large, wide), min(middle, small));
  if (large == least) return LaunchForTile<T, LargeTile>(args, stream);
  if (wide == least) return LaunchForTile<T, WideTile>(args, stream);
  if (middle == least) return LaunchForTile<T, MiddleTile>(args, stream);
  LaunchForTile<T, SmallTile>(args, stream);
}

}  // namespace warpgroup_gemm_cu

bool HasWarpgroupGemm(const GemvArgs& args) {
  return args.dtype != DType::kFloat32 && args.format == kernels::FormatOf(args.dtype) &&
         HasWarpgroups();
}

void WarpgroupGemm(const GemvArgs& args, Stream stream) {
  MLC_CHECK(HasWarpgroupGemm(args) && args.k % kVector == 0) << args.m << " x " << args.k;
  MLC_CHECK((args.float_output || !args.accumulate) && !args.activates && !args.normalizes);
  if (args.m == 0) return;
  args.dtype == DType::kBFloat16 ? LaunchForType<BFloat16>(args, stream)
                                 : LaunchForType<Float16>(args, stream);
}

}  // namespace mlc_native::kernels::cuda
