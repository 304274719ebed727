// WarpgroupWorker with tiles of all sizes, and what it counts on, each left out in turn: the bits
// of Gemv are lost then.
#include <cstdlib>

#include "cuda/gemv_weights.h"
#include "kernels/cuda/warpgroup_worker.cuh"

namespace mlc_native::kernels::cuda {
namespace {

struct WarpgroupFaultArgs {
  GemvArgs product;
};

template <typename Shape, typename Rules>
void WarpgroupFaultKernel(const WarpgroupFaultArgs args) {
  WarpgroupWorker<BFloat16, Shape, Rules>(args.product,
                                          static_cast<int>(blockIdx.x) * Shape::kWeightRows,
                                          static_cast<int>(blockIdx.y) * Shape::kXRows)
      .Run();
}

// The steps in their own order.
struct StepsInTurn : WarpgroupRules {
  static int NextStep(int step, int) { return step + 1; }
};
// One sum of all chains instead of a sum of sums.
struct SumOfAllChains : WarpgroupRules {
  static bool IsNewChain(int, int next) { return next >= 19; }
};
struct NoWaitForCopies : WarpgroupRules {
  template <int kLeft>
  static void AwaitCopies() {}
};
struct WaitForStageBefore : WarpgroupRules {
  template <int kLeft>
  static void AwaitCopies() {
    WaitForCopies<kLeft + 1>();
    PublishToMma();
  }
};
struct NotPublished : WarpgroupRules {
  template <int kLeft>
  static void AwaitCopies() {
    WaitForCopies<kLeft>();
  }
};
struct NoBarrier : WarpgroupRules {
  static void AwaitStage() {}
};

class WarpgroupFaultsTest : public GemvWeightsTest {
 protected:
  static constexpr int64_t kN = 200;
  static constexpr int64_t kK = 2312;
  static constexpr int64_t kM = 133;

  template <typename Shape, typename Rules = WarpgroupRules>
  bool HasBitsOfGemv() {
    constexpr auto kTiles = static_cast<unsigned>((kN - 1) / Shape::kWeightRows + 1);
    constexpr auto kRowTiles = static_cast<unsigned>((kM - 1) / Shape::kXRows + 1);
    return HaveSameBits(
        WeightFormat::kBFloat16, kN, kK, kM, [](const GemvArgs& args) { Gemm(args, nullptr); },
        [](const GemvArgs& args) {
          Launch(WarpgroupFaultKernel<Shape, Rules>,
                 {.grid = dim3(kTiles, kRowTiles),
                  .threads = Shape::kThreads,
                  .shared_bytes = WarpgroupWorker<BFloat16, Shape, Rules>::SharedBytes(),
                  .is_of_90 = true},
                 nullptr, WarpgroupFaultArgs{args});
        });
  }

  template <typename Rules>
  bool WithFault() {
    return HasBitsOfGemv<WarpgroupShape<1, 4, 4>, Rules>();
  }

  // For bugs that may also end the process.
  template <typename Rules>
  [[noreturn]] void EndsWithTheBits() {
    std::exit(WithFault<Rules>() ? 0 : 1);
  }
};

TEST_F(WarpgroupFaultsTest, WithoutOneItHasTheBitsOfGemv) {
  EXPECT_TRUE((HasBitsOfGemv<WarpgroupShape<1, 4, 5>>()));
  EXPECT_TRUE((HasBitsOfGemv<WarpgroupShape<1, 8, 6>>()));
  EXPECT_TRUE((HasBitsOfGemv<WarpgroupShape<2, 8, 8>>()));
  EXPECT_TRUE((HasBitsOfGemv<WarpgroupShape<2, 16, 6>>()));
  EXPECT_TRUE(WithFault<WarpgroupRules>());
}

TEST_F(WarpgroupFaultsTest, AnotherOrderOfSumsHasOtherBits) {
  EXPECT_FALSE(WithFault<StepsInTurn>());
  EXPECT_FALSE(WithFault<SumOfAllChains>());
}

TEST_F(WarpgroupFaultsTest, AMissingWaitOrBarrierShows) {
  EXPECT_DEATH(EndsWithTheBits<NoWaitForCopies>(), "");
  EXPECT_FALSE(WithFault<WaitForStageBefore>());
  EXPECT_FALSE(WithFault<NoBarrier>());
}

TEST_F(WarpgroupFaultsTest, DiesOfProductsOfWhatWasNotPublished) {
  EXPECT_DEATH(WithFault<NotPublished>(), "reads what was not published");
}

// ---- Fences of registers ----

struct FenceArgs {
  bool first;
  bool second;  // behind a wait
};

// Two products of a warpgroup.
void FenceKernel(const FenceArgs args) {
  WaitForPrevious();
  const MmaColumns b(DynamicShared(), 32 * 16);
  const uint32_t a[4] = {};
  float sums[4][4];
  if (args.first) FenceMma(sums);
  StartMma<BFloat16>(sums, a, b, false);
  CommitMma();
  WaitForMma<0>(sums);
  if (args.second) FenceMma(sums);
  StartMma<BFloat16>(sums, a, b, true);
  CommitMma();
  WaitForMma<0>(sums);
}

TEST(WarpgroupFencesTest, DiesOfProductsWithoutThem) {
  const auto run = [](const FenceArgs& args) {
    const OwnedStream stream;
    Launch(FenceKernel, {.grid = dim3(1), .threads = kWarpgroup, .shared_bytes = 2 * 32 * 16},
           stream.get(), args);
    stream.Synchronize();
  };
  run({true, true});
  EXPECT_DEATH(run({false, true}), "a product without a fence");
  EXPECT_DEATH(run({true, false}), "a product without a fence");
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
