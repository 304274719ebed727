// What PrefillWorker counts on, each left out in turn: the bits of PrefillAttention are lost then.
// They are kept with fewer rows per warp.
#include "cuda/paged_kv.h"
#include "kernels/cuda/prefill_worker.cuh"

namespace mlc_native::kernels::cuda {
namespace {

template <typename Shape, typename Rules>
void RulesKernel(const PrefillArgs args) {
  WaitForPrevious();
  const PrefillTile tile = args.tiles[blockIdx.x];
  PrefillWorker<BFloat16, BFloat16, Shape, Rules>(args, tile, static_cast<int>(blockIdx.y),
                                                  static_cast<BFloat16*>(DynamicShared()))
      .Run();
}

struct NoKeyWait : PrefillRules {
  static void AwaitKeys() { __syncthreads(); }
};
struct NoValueWait : PrefillRules {
  static void AwaitValues() { __syncthreads(); }
};
struct ShortValueWait : PrefillRules {
  static void AwaitValues() {
    WaitForCopies<1>();
    __syncthreads();
  }
};
struct NoKeyBarrier : PrefillRules {
  static void AwaitKeys() { WaitForCopies<0>(); }
};
struct NoValueBarrier : PrefillRules {
  static void AwaitValues() { WaitForCopies<0>(); }
};
struct NoDiagonal : PrefillRules {
  static bool HasUnseen(int key, int, int first_seen, int) { return key < first_seen; }
};
struct LateDiagonal : PrefillRules {
  static bool HasUnseen(int key, int num_keys, int first_seen, int last_seen) {
    return PrefillRules::HasUnseen(key, num_keys - 1, first_seen, last_seen);
  }
};
struct NoWindow : PrefillRules {
  static bool HasUnseen(int key, int num_keys, int, int last_seen) {
    return key + num_keys > last_seen + 1;
  }
};
struct NoScaling : PrefillRules {
  static bool HasOtherMaximum(bool) { return false; }
};
struct OtherHalf : PrefillRules {
  static int RowOfWarp(int lane, int tile, int half) {
    return PrefillRules::RowOfWarp(lane, tile, 1 - half);
  }
};
struct OtherTile : PrefillRules {
  static int RowOfWarp(int lane, int tile, int half) {
    return PrefillRules::RowOfWarp(lane, 1 - tile, half);
  }
};

using Shape = PrefillShape<64, 2>;

class PrefillFaultsTest : public CudaKernelTest {
 protected:
  static constexpr int64_t kFirst = 126;  // the diagonal of the first tile begins at a step's end
  static constexpr int64_t kTokens = 80;
  static constexpr int64_t kGroup = 2;
  static constexpr int64_t kKvHeads = 2;

  template <typename Shape, typename Rules>
  bool HasBitsOfPrefillAttention(int64_t window = 0) {
    constexpr DType kType = DType::kBFloat16;
    const KvShape shape{kType, KvFormat::kBFloat16, kGroup * kKvHeads, kKvHeads, Shape::kDim};
    const PagedKv paged(shape, {kFirst + kTokens}, {1});
    const int64_t width = shape.q_heads * shape.head_dim;
    const DeviceBytes q(Encode(kType, Random(kType, kTokens * width, 2)));
    const DeviceBytes want(kTokens * width * DTypeSize(kType)), got(want.size());
    AttentionArgs args{.dtype = kType,
                       .q = q.data(),
                       .ldq = width,
                       .out = want.data(),
                       .ldo = width,
                       .q_heads = shape.q_heads,
                       .scale = 0.2f,
                       .window = window,
                       .block_tables = paged.tables->data(),
                       .ld_block_tables = paged.ld_tables};
    const int64_t whole = PrefillTileRows(shape.q_heads, shape.kv_heads, shape.head_dim);
    const DeviceArray<PrefillTile> whole_tiles(Tiles(whole)), tiles(Tiles(Shape::kRows / kGroup));
    PrefillAttention(paged.kv, args, whole_tiles.data(), whole_tiles.size(), nullptr);
    args.out = got.data();
    Launch(RulesKernel<Shape, Rules>,
           {.grid = dim3(static_cast<unsigned>(tiles.size()), kKvHeads),
            .threads = Shape::kThreads,
            .shared_bytes = Shape::kSharedBytes},
           nullptr, PrefillArgsOf(paged.kv, args, tiles.data()));
    return got.Download() == want.Download();
  }

  // Whether a run of some has other bits: the emulator's copies are late and its threads take turns
  // by chance.
  template <typename Rules>
  bool IsFound(int64_t window = 0) {
    for (int run = 0; run < 8; ++run) {
      if (!HasBitsOfPrefillAttention<Shape, Rules>(window)) return true;
    }
    return false;
  }

  static std::vector<PrefillTile> Tiles(int64_t tokens) {
    std::vector<PrefillTile> tiles;
    for (int64_t at = 0; at < kTokens; at += tokens) {
      tiles.push_back({.row_begin = static_cast<int32_t>(at),
                       .num_rows = static_cast<int32_t>(std::min(tokens, kTokens - at)),
                       .first_position = static_cast<int32_t>(kFirst + at)});
    }
    return tiles;
  }
};

TEST_F(PrefillFaultsTest, ARowHasTheSameBitsWithFewerRowsPerWarp) {
  EXPECT_TRUE((HasBitsOfPrefillAttention<Shape, PrefillRules>()));
  EXPECT_TRUE((HasBitsOfPrefillAttention<PrefillShape<64, 1>, PrefillRules>(40)));
  EXPECT_TRUE((HasBitsOfPrefillAttention<PrefillShape<128, 1>, PrefillRules>()));
}

TEST_F(PrefillFaultsTest, AMissingWaitOrBarrierShows) {
  EXPECT_TRUE(IsFound<NoKeyWait>());
  EXPECT_TRUE(IsFound<NoValueWait>());
  EXPECT_TRUE(IsFound<ShortValueWait>());
  EXPECT_TRUE(IsFound<NoKeyBarrier>());
  EXPECT_TRUE(IsFound<NoValueBarrier>());
}

TEST_F(PrefillFaultsTest, AMissingMaskShows) {
  EXPECT_TRUE(IsFound<NoDiagonal>());
  EXPECT_TRUE(IsFound<LateDiagonal>());
  EXPECT_TRUE(IsFound<NoWindow>(100));
}

TEST_F(PrefillFaultsTest, SumsOfAnotherScaleShow) { EXPECT_TRUE(IsFound<NoScaling>()); }

TEST_F(PrefillFaultsTest, AnotherRowOfTheWarpShows) {
  EXPECT_TRUE(IsFound<OtherHalf>());
  EXPECT_TRUE(IsFound<OtherTile>());
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
