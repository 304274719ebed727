// What a product that normalizes counts on, each left out in turn: the bits of AddNorm and Gemv are
// lost then.
#include "cuda/gemv_weights.h"
#include "kernels/cuda/gemv_worker.cuh"

namespace mlc_native::kernels::cuda {
namespace {

struct NormFaultArgs {
  GemvArgs product;
};

template <typename Norm>
void NormFaultKernel(const NormFaultArgs args) {
  using Worker = GemvWorker<PlainFormat<BFloat16>, 1, 2, false, true, Norm>;
  __shared__ typename Worker::Sums shared[2];
  Worker(args.product).Run(shared);
}

struct MissingRowBarrier : NormOfRow {
  static void AwaitRow() {}
};

class NormGemvFaultsTest : public GemvWeightsTest {
 protected:
  static constexpr int64_t kSize = 512;

  // Whether residual += product of norm(residual), without and with the sums in a place of their
  // own.
  template <typename Norm>
  bool HasTheBits(bool in_place = false) {
    const DeviceBytes weight(RandomWeights(WeightFormat::kBFloat16, kSize, kSize).bytes),
        norm(Encode(DType::kBFloat16, Random(DType::kBFloat16, kSize))), normalized(kSize * 2);
    const Floats before = Random(DType::kFloat32, kSize, 2);
    const DeviceArray<float> residual(before), want(before), got(before);
    AddNorm({.residual = residual.data(),
             .pre_weight = norm.data(),
             .y = normalized.data(),
             .m = 1,
             .dim = kSize},
            nullptr);
    GemvArgs args{.weight = weight.data(),
                  .n = kSize,
                  .k = kSize,
                  .x = normalized.data(),
                  .ldx = kSize,
                  .m = 1,
                  .y = want.data(),
                  .ldy = kSize,
                  .float_output = true,
                  .accumulate = true,
                  .norm = {.weight = norm.data()}};
    Gemv(args, nullptr);
    args.x = in_place ? got.data() : residual.data();
    args.y = got.data();
    Launch(NormFaultKernel<Norm>,
           {.grid = dim3(6), .threads = kGemvThreads, .shared_bytes = kSize * 2}, nullptr,
           NormFaultArgs{args});
    return got.Download() == want.Download();
  }
};

TEST_F(NormGemvFaultsTest, WithoutOneItHasTheBits) { EXPECT_TRUE(HasTheBits<NormOfRow>()); }

TEST_F(NormGemvFaultsTest, AMissingBarrierShows) { EXPECT_FALSE(HasTheBits<MissingRowBarrier>()); }

// A block writes the residual while others are about to read it, which NormGemv refuses.
TEST_F(NormGemvFaultsTest, SumsInThePlaceOfTheRowShow) {
  EXPECT_FALSE(HasTheBits<NormOfRow>(true));
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
