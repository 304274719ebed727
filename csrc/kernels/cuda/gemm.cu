// Gemm: products of many rows with the bits of Gemv. Where the GPU has products of warpgroups, it
// leaves weights that are not quantized to WarpgroupGemm.
//
// A block is a GemmWorker. Large tiles read less, small ones are enough for all multiprocessors;
// Cost chooses.
// Blocks are numbered so that those that run at the same time share weights and rows of x: all
// weights for up to kBand tiles of x, then for the next ones.
//
// Bytes: the weights once for each band from memory. From the cache, the weights once for each tile
// of x, and x once for each tile of the weights. Operations: 2 m n k.
#include "kernels/cuda/gemm_worker.cuh"
#include "kernels/cuda/warpgroup.cuh"

namespace mlc_native::kernels::cuda {
inline namespace gemm_cu {

constexpr int kBand = 8;

using SmallTile = GemmTile<2, 2, 1, 4>;  // 32 rows of the weight, 64 of x
using WideTile = GemmTile<4, 2, 2, 4>;   // 128 and 64
using LargeTile = GemmTile<4, 2, 2, 8>;  // 128 and 128

struct GemmArgs {
  GemvArgs product;
  int weight_tiles;
  int x_tiles;
};

template <typename Format, typename Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kThreads == 128 ? 2 : 1)
    GemmKernel(const __grid_constant__ GemmArgs args) {
  if constexpr (Format::kGroupBlocks > 0 || kLacksWarpgroups) {
    const int band = static_cast<int>(blockIdx.x) / (kBand * args.weight_tiles);
    const int place = static_cast<int>(blockIdx.x) % (kBand * args.weight_tiles);
    const int width = min(kBand, args.x_tiles - band * kBand);
    GemmWorker<Format, Tile>(args.product, place / width * Tile::kWeightRows,
                             (band * kBand + place % width) * Tile::kXRows)
        .Run();
  }
}

template <typename Tile>
int64_t NumBlocks(const GemvArgs& args) {
  return (args.n + Tile::kWeightRows - 1) / Tile::kWeightRows *
         ((args.m + Tile::kXRows - 1) / Tile::kXRows);
}

// What the blocks wait for: shared memory, on the multiprocessor with the most of them, or the
// cache, from which all multiprocessors together get so much less.
template <typename Tile>
int64_t Cost(const GemvArgs& args) {
  constexpr int64_t kCacheCost = 5;
  const int64_t multiprocessors = NumMultiprocessors();
  const int64_t blocks = NumBlocks<Tile>(args);
  return max((blocks + multiprocessors - 1) / multiprocessors * Tile::kCost,
             blocks * (Tile::kWeightRows + Tile::kXRows) * kCacheCost / multiprocessors);
}

template <typename Format, typename Tile>
void LaunchForTile(const GemvArgs& args, Stream stream) {
  const auto tiles = [](int64_t rows, int of_tile) {
    return static_cast<int>((rows + of_tile - 1) / of_tile);
  };
  Launch(GemmKernel<Format, Tile>,
         {.grid = dim3(static_cast<unsigned>(NumBlocks<Tile>(args))),
          .threads = Tile::kThreads,
          .shared_bytes = GemmWorker<Format, Tile>::SharedBytes()},
         stream,
         GemmArgs{.product = args,
                  .weight_tiles = tiles(args.n, Tile::kWeightRows),
                  .x_tiles = tiles(args.m, Tile::kXRows)});
}

template <typename Format>
void LaunchForSize(const GemvArgs& args, Stream stream) {
  const int64_t small = Cost<SmallTile>(args);
  const int64_t large = Cost<LargeTile>(args);
  if constexpr (!Format::kIsRare) {
    const int64_t wide = Cost<WideTile>(args);
    if (wide <= small && wide < large) return LaunchForTile<Format, WideTile>(args, stream);
  }
  if (large <= small) return LaunchForTile<Format, LargeTile>(args, stream);
  LaunchForTile<Format, SmallTile>(args, stream);
}

void InPieces(GemvArgs args, Stream stream) {
  const int64_t m = args.m;
  const auto* x = static_cast<const float*>(args.x);
  auto* y = static_cast<float*>(args.y);
  for (int64_t row = 0; row < m; row += kMaxGemvRows) {
    args.m = min(kMaxGemvRows, m - row);
    args.x = x + row * args.ldx;
    args.y = y + row * args.ldy;
    Gemv(args, stream);
  }
}

}  // namespace gemm_cu

void Gemm(const GemvArgs& args, Stream stream) {
  MLC_CHECK(args.k % kVector == 0) << args.m << " x " << args.k;
  MLC_CHECK((args.float_output || !args.accumulate) && !args.activates && !args.normalizes);
  if (args.m == 0) return;
  if (HasWarpgroupGemm(args) && !LacksWarpgroups()) return WarpgroupGemm(args, stream);
  const auto launch = [&](auto tag) {
    WithGemvFormat<typename decltype(tag)::Type>(args.format, args.dtype, [&](auto format) {
      LaunchForSize<typename decltype(format)::Type>(args, stream);
    });
  };
  switch (args.dtype) {
    case DType::kBFloat16:
      return launch(TypeTag<BFloat16>());
    case DType::kFloat16:
      return launch(TypeTag<Float16>());
    case DType::kFloat32:
      return InPieces(args, stream);  // whose sums do not depend on their number either
  }
}

}  // namespace mlc_native::kernels::cuda
