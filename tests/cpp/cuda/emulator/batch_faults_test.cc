// BatchWorker with any number of splits, and what it counts on, each left out in turn: the bits of
// Gemv are lost then, or the emulator ends the process.
#include "cuda/gemv_weights.h"
#include "kernels/cuda/batch_worker.cuh"

namespace mlc_native::kernels::cuda {
namespace {

struct BatchFaultArgs {
  GemvArgs product;
};

template <typename Format, typename Shape, typename Rules>
void BatchFaultKernel(const BatchFaultArgs args) {
  const auto block = static_cast<int>(blockIdx.x);
  BatchWorker<Format, Shape, Rules>(args.product, block / Shape::kSplits, block % Shape::kSplits,
                                    static_cast<int>(blockIdx.y) * Shape::kXRows)
      .Run();
}

struct MissingStageWait : BatchRules {
  template <int kLeft>
  static void AwaitStage() {
    __syncthreads();
  }
};
struct ShortWaitForStage : BatchRules {
  template <int kLeft>
  static void AwaitStage() {
    WaitForCopies<kLeft + 1>();
    __syncthreads();
  }
};
struct MissingStageBarrier : BatchRules {
  template <int kLeft>
  static void AwaitStage() {
    WaitForCopies<kLeft>();
  }
};
struct SumsOfOneBlock : BatchRules {
  template <int kBlocks>
  static void AwaitSums() {
    __syncthreads();
  }
};
struct NoWaitForReadersOfSums : BatchRules {
  template <int kBlocks>
  static void AwaitReaders() {}
};

class BatchFaultsTest : public GemvWeightsTest {
 protected:
  static constexpr int64_t kN = 200;
  static constexpr int64_t kK = 2312;
  static constexpr int64_t kM = 37;

  template <typename Format, typename Shape, typename Rules = BatchRules>
  bool HasBitsOfGemv(WeightFormat format) {
    constexpr auto kTiles = static_cast<unsigned>((kN - 1) / Shape::kWeightRows + 1);
    constexpr auto kRowTiles = static_cast<unsigned>((kM - 1) / Shape::kXRows + 1);
    return HaveSameBits(
        format, kN, kK, kM, [](const GemvArgs& args) { Gemm(args, nullptr); },
        [](const GemvArgs& args) {
          Launch(BatchFaultKernel<Format, Shape, Rules>,
                 {.grid = dim3(kTiles * Shape::kSplits, kRowTiles),
                  .threads = Shape::kThreads,
                  .shared_bytes = BatchWorker<Format, Shape, Rules>::SharedBytes(),
                  .cluster = Shape::kSplits},
                 nullptr, BatchFaultArgs{args});
        });
  }

  template <typename Rules>
  bool WithFault() {
    return HasBitsOfGemv<Q8Format<BFloat16>, BatchShape<2, 2, 4, 4>, Rules>(WeightFormat::kQ8);
  }
};

TEST_F(BatchFaultsTest, WithoutOneItHasTheBitsOfGemv) {
  using Plain = PlainFormat<BFloat16>;
  using Q4 = Q4Format<BFloat16>;
  using Float8 = Float8Format<BFloat16>;
  EXPECT_TRUE((HasBitsOfGemv<Plain, BatchShape<4, 2, 8, 3>>(WeightFormat::kBFloat16)));
  EXPECT_TRUE((HasBitsOfGemv<Plain, BatchShape<4, 4, 2, 4>>(WeightFormat::kBFloat16)));
  EXPECT_TRUE((HasBitsOfGemv<Plain, BatchShape<2, 8, 4, 2>>(WeightFormat::kBFloat16)));
  EXPECT_TRUE((HasBitsOfGemv<Q4, BatchShape<4, 8, 8, 4>>(WeightFormat::kQ4)));
  EXPECT_TRUE((HasBitsOfGemv<Q4, BatchShape<4, 4, 2, 3>>(WeightFormat::kQ4)));
  EXPECT_TRUE((HasBitsOfGemv<Float8, BatchShape<4, 4, 8, 4>>(WeightFormat::kFloat8)));
  EXPECT_TRUE(WithFault<BatchRules>());
}

TEST_F(BatchFaultsTest, AMissingWaitOrBarrierShows) {
  EXPECT_FALSE(WithFault<MissingStageWait>());
  EXPECT_FALSE(WithFault<ShortWaitForStage>());
  EXPECT_FALSE(WithFault<MissingStageBarrier>());
  EXPECT_FALSE(WithFault<SumsOfOneBlock>());
}

TEST_F(BatchFaultsTest, ABlockThatEndsTooEarlyShows) {
  GTEST_FLAG_SET(death_test_style, "fast");
  EXPECT_DEATH(WithFault<NoWaitForReadersOfSums>(), "shared memory of a block that has ended");
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
