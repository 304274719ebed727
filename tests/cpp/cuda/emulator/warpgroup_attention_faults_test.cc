// What WarpgroupAttentionWorker counts on, each left out in turn: the bits of PrefillAttention are
// lost then.
#include <cstdlib>

#include "cuda/paged_kv.h"
#include "kernels/cuda/warpgroup_attention_worker.cuh"

namespace mlc_native::kernels::cuda {
namespace {

template <typename Shape, typename Rules>
void WarpgroupAttentionRulesKernel(const PrefillArgs args) {
  WaitForPrevious();
  const PrefillTile tile = args.tiles[blockIdx.x];
  WarpgroupAttentionWorker<BFloat16, Shape, Rules>(args, tile, static_cast<int>(blockIdx.y)).Run();
}

class WarpgroupAttentionFaultsTest : public CudaKernelTest {
 protected:
  using Shape = WarpgroupAttentionShape<64>;
  using Rules = WarpgroupAttentionRules;

  struct NoWaitForCopies : Rules {
    template <int kLeft>
    static void AwaitCopies() {}
  };
  struct WaitForStageBefore : Rules {
    template <int kLeft>
    static void AwaitCopies() {
      WaitForCopies<kLeft + 1>();
      PublishToMma();
    }
  };
  struct NotPublished : Rules {
    template <int kLeft>
    static void AwaitCopies() {
      WaitForCopies<kLeft>();
    }
  };
  struct NoWaitUntilFull : Rules {
    static void AwaitFull(ArrivalBarrier&, uint32_t) {}
  };
  struct WaitForRoundBefore : Rules {
    static void AwaitFull(ArrivalBarrier& full, uint32_t parity) { full.Await(parity ^ 1); }
  };
  struct NoWaitUntilFree : Rules {
    static void AwaitFree(ArrivalBarrier&, uint32_t) {}
  };
  struct NoWaitForScores : Rules {
    template <typename Scores>
    static void AwaitScores(Scores&) {}
  };
  struct NoWaitForSums : Rules {
    template <typename Sums>
    static void AwaitSums(Sums&) {}
  };
  struct ShortWaitForSums : Rules {
    template <typename Sums>
    static void AwaitSums(Sums& sums) {
      WaitForMma<1>(sums);
    }
  };
  struct NoDiagonal : Rules {
    static bool HasUnseen(int key, int, int first_seen, int) { return key < first_seen; }
  };
  struct LateDiagonal : Rules {
    static bool HasUnseen(int key, int num_keys, int first_seen, int last_seen) {
      return Rules::HasUnseen(key, num_keys - 1, first_seen, last_seen);
    }
  };
  struct NoWindow : Rules {
    static bool HasUnseen(int key, int num_keys, int, int last_seen) {
      return key + num_keys > last_seen + 1;
    }
  };
  struct NoScaling : Rules {
    static bool HasOtherMaximum(bool) { return false; }
  };
  struct OtherHalf : Rules {
    static int RowOfWarp(int lane, int tile, int half) {
      return Rules::RowOfWarp(lane, tile, 1 - half);
    }
  };

  // More steps than the ring has stages; and the diagonal of the first tile begins at a step's end.
  static constexpr int64_t kFirst = 510;
  static constexpr int64_t kTokens = 80;
  static constexpr int64_t kGroup = 2;
  static constexpr int64_t kKvHeads = 2;

  // What attention(kv, args, tiles, number of tiles) computes, always of the same queries.
  template <typename F>
  std::vector<uint8_t> OutputOf(int64_t window, const F& attention) {
    constexpr DType kType = DType::kBFloat16;
    const KvShape shape{kType, KvFormat::kBFloat16, kGroup * kKvHeads, kKvHeads, Shape::kDim};
    const PagedKv paged(shape, {kFirst + kTokens}, {1});
    const int64_t width = shape.q_heads * shape.head_dim;
    random_.seed(1);
    const DeviceBytes q(Encode(kType, Random(kType, kTokens * width, 2)));
    const DeviceBytes out(kTokens * width * DTypeSize(kType));
    std::vector<PrefillTile> tiles;
    constexpr int64_t kTileTokens = Shape::kRows / kGroup;
    for (int64_t at = 0; at < kTokens; at += kTileTokens) {
      tiles.push_back({.row_begin = static_cast<int32_t>(at),
                       .num_rows = static_cast<int32_t>(std::min(kTileTokens, kTokens - at)),
                       .first_position = static_cast<int32_t>(kFirst + at)});
    }
    const DeviceArray<PrefillTile> device_tiles(tiles);
    attention(paged.kv,
              AttentionArgs{.dtype = kType,
                            .q = q.data(),
                            .ldq = width,
                            .out = out.data(),
                            .ldo = width,
                            .q_heads = shape.q_heads,
                            .scale = 0.2f,
                            .window = window,
                            .block_tables = paged.tables->data(),
                            .ld_block_tables = paged.ld_tables},
              device_tiles.data(), static_cast<int64_t>(tiles.size()));
    return out.Download();
  }

  std::vector<uint8_t> OutputOfPrefillAttention(int64_t window = 0) {
    return OutputOf(window, [](const auto&... args) { PrefillAttention(args..., nullptr); });
  }

  template <typename RulesOfKernel>
  bool HasBitsOfPrefillAttention(int64_t window = 0) {
    using Worker = WarpgroupAttentionWorker<BFloat16, Shape, RulesOfKernel>;
    const auto got = OutputOf(window, [](const KvPages& kv, const AttentionArgs& args,
                                         const PrefillTile* tiles, int64_t num_tiles) {
      Launch(WarpgroupAttentionRulesKernel<Shape, RulesOfKernel>,
             {.grid = dim3(static_cast<unsigned>(num_tiles), kKvHeads),
              .threads = Shape::kThreads,
              .shared_bytes = Worker::SharedBytes(),
              .is_of_90 = true},
             nullptr, PrefillArgsOf(kv, args, tiles));
    });
    return got == OutputOfPrefillAttention(window);
  }

  // Whether a run of some has other bits: the emulator's threads take turns by chance.
  template <typename RulesOfKernel>
  bool IsFound(int64_t window = 0) {
    for (int run = 0; run < 3; ++run) {
      if (!HasBitsOfPrefillAttention<RulesOfKernel>(window)) return true;
    }
    return false;
  }

  // For bugs that may also end the process: then threads wait for one another forever.
  template <typename RulesOfKernel>
  [[noreturn]] void EndsWithTheBits() {
    std::exit(IsFound<RulesOfKernel>() ? 1 : 0);
  }
};

TEST_F(WarpgroupAttentionFaultsTest, WithoutOneItHasTheBitsOfPrefillAttention) {
  EXPECT_TRUE(HasBitsOfPrefillAttention<Rules>());
  EXPECT_TRUE(HasBitsOfPrefillAttention<Rules>(100));
  EXPECT_EXIT(EndsWithTheBits<Rules>(), ::testing::ExitedWithCode(0), "");
}

TEST_F(WarpgroupAttentionFaultsTest, AMissingOrShortWaitForCopiesShows) {
  EXPECT_TRUE(IsFound<NoWaitForCopies>());
  EXPECT_TRUE(IsFound<WaitForStageBefore>());
}

TEST_F(WarpgroupAttentionFaultsTest, DiesOfProductsOfWhatWasNotPublished) {
  EXPECT_DEATH(EndsWithTheBits<NotPublished>(), "reads what was not published");
}

TEST_F(WarpgroupAttentionFaultsTest, AStageThatIsUsedTooEarlyShows) {
  EXPECT_DEATH(EndsWithTheBits<NoWaitUntilFull>(), "");
  EXPECT_DEATH(EndsWithTheBits<WaitForRoundBefore>(), "");
  EXPECT_DEATH(EndsWithTheBits<NoWaitUntilFree>(), "");
}

TEST_F(WarpgroupAttentionFaultsTest, AMissingOrShortWaitForProductsShows) {
  EXPECT_TRUE(IsFound<NoWaitForScores>());
  EXPECT_TRUE(IsFound<NoWaitForSums>());
  EXPECT_TRUE(IsFound<ShortWaitForSums>());
}

TEST_F(WarpgroupAttentionFaultsTest, AMissingMaskShows) {
  EXPECT_TRUE(IsFound<NoDiagonal>());
  EXPECT_TRUE(IsFound<LateDiagonal>());
  EXPECT_TRUE(IsFound<NoWindow>(100));
}

TEST_F(WarpgroupAttentionFaultsTest, SumsOfAnotherScaleShow) { EXPECT_TRUE(IsFound<NoScaling>()); }

TEST_F(WarpgroupAttentionFaultsTest, AnotherRowOfTheWarpShows) {
  EXPECT_TRUE(IsFound<OtherHalf>());
}

TEST_F(WarpgroupAttentionFaultsTest, PrefillAttentionLeavesItToThemOnRequest) {
  const auto without = OutputOfPrefillAttention();
  EXPECT_EQ(blockDim.x, 128u);  // of the last kernel
  setenv("MLC_NATIVE_CUDA_WARPGROUP_ATTENTION", "1", 1);
  EXPECT_EQ(OutputOfPrefillAttention(), without);
  EXPECT_EQ(blockDim.x, unsigned{Shape::kThreads});
  setenv("MLC_NATIVE_CUDA_WARPGROUP_ATTENTION", "0", 1);
  EXPECT_EQ(OutputOfPrefillAttention(), without);
  EXPECT_EQ(blockDim.x, 128u);
  unsetenv("MLC_NATIVE_CUDA_WARPGROUP_ATTENTION");
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
