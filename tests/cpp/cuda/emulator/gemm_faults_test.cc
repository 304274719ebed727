// What GemmWorker counts on, each left out in turn: the bits of Gemv are lost then.
#include "cuda/gemv_weights.h"
#include "kernels/cuda/gemm_worker.cuh"

namespace mlc_native::kernels::cuda {
namespace {

using Tile = GemmTile<2, 2, 1, 1>;

struct GemmFaultArgs {
  GemvArgs product;
};

template <typename Format, typename Rules>
void FaultKernel(const GemmFaultArgs args) {
  GemmWorker<Format, Tile, Rules>(args.product, static_cast<int>(blockIdx.x) * Tile::kWeightRows, 0)
      .Run();
}

// The steps in their own order.
struct AscendingSteps : GemmRules {
  static int NextStep(int step, int) { return step + 1; }
};
// One sum of all chains instead of a sum of sums.
struct OneChain : GemmRules {
  static bool IsNewChain(int, int next) { return next >= 16; }
};
struct MissingWait : GemmRules {
  template <int kLeft>
  static void AwaitStage() {
    __syncthreads();
  }
};
struct ShortStageWait : GemmRules {
  template <int kLeft>
  static void AwaitStage() {
    WaitForCopies<kLeft + 1>();
    __syncthreads();
  }
};
struct MissingBarrier : GemmRules {
  template <int kLeft>
  static void AwaitStage() {
    WaitForCopies<kLeft>();
  }
};

class GemmFaultsTest : public GemvWeightsTest {
 protected:
  static constexpr int64_t kN = 256;
  static constexpr int64_t kK = 2048;
  static constexpr int64_t kM = Tile::kXRows;

  // How many of two formats have them.
  template <typename Rules>
  int FormatsWithBitsOfGemv() {
    return HasBitsOfGemv<Q8Format<BFloat16>, Rules>(WeightFormat::kQ8) +
           HasBitsOfGemv<Float8Format<BFloat16>, Rules>(WeightFormat::kFloat8);
  }

  template <typename Format, typename Rules>
  int HasBitsOfGemv(WeightFormat format) {
    const bool same = HaveSameBits(
        format, kN, kK, kM, [](const GemvArgs& args) { Gemv(args, nullptr); },
        [](const GemvArgs& args) {
          Launch(FaultKernel<Format, Rules>,
                 {.grid = dim3(kN / Tile::kWeightRows),
                  .threads = Tile::kThreads,
                  .shared_bytes = GemmWorker<Format, Tile, Rules>::SharedBytes()},
                 nullptr, GemmFaultArgs{args});
        });
    return same ? 1 : 0;
  }
};

TEST_F(GemmFaultsTest, WithoutOneItHasTheBitsOfGemv) {
  EXPECT_EQ(FormatsWithBitsOfGemv<GemmRules>(), 2);
}

TEST_F(GemmFaultsTest, AnotherOrderOfSumsHasOtherBits) {
  EXPECT_EQ(FormatsWithBitsOfGemv<AscendingSteps>(), 0);
  EXPECT_EQ(FormatsWithBitsOfGemv<OneChain>(), 0);
}

TEST_F(GemmFaultsTest, AMissingWaitOrBarrierShows) {
  EXPECT_EQ(FormatsWithBitsOfGemv<MissingWait>(), 0);
  EXPECT_EQ(FormatsWithBitsOfGemv<ShortStageWait>(), 0);
  EXPECT_EQ(FormatsWithBitsOfGemv<MissingBarrier>(), 0);
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
