#include "cuda/gemv_weights.h"

namespace mlc_native::kernels::cuda {
namespace {

// Rows of the residual that are normalized and multiplied.
class NormGemvTest : public GemvWeightsTest {
 protected:
  struct Shape {
    int64_t n, k;
    bool has_bias = false;
    bool activates = false;
  };
  static constexpr int64_t kRows = 8;

  void Check(DType dtype, WeightFormat format, const Shape& s) {
    const auto size = static_cast<int64_t>(DTypeSize(dtype));
    const DeviceBytes weight(RandomWeights(format, s.n, s.k).bytes),
        bias(Encode(dtype, Random(dtype, s.n, 4))), norm(Encode(dtype, Random(dtype, s.k))),
        added(Encode(dtype, Random(dtype, kRows * s.k))), normalized(kRows * s.k * size),
        want(kRows * s.n * size);
    const DeviceArray<float> residual(Random(DType::kFloat32, kRows * s.k, 2));
    GemvArgs args{.format = format,
                  .dtype = dtype,
                  .weight = weight.data(),
                  .n = s.n,
                  .k = s.k,
                  .x = normalized.data(),
                  .ldx = s.k,
                  .bias = s.has_bias ? bias.data() : nullptr,
                  .ldy = s.activates ? s.n / 2 : s.n,
                  .activates = s.activates,
                  .norm = {.weight = norm.data(), .weight_offset = 0.5f, .eps = 1e-5f}};
    for (int64_t m = 1; m <= kRows; ++m) {
      AddNorm({.dtype = dtype,
               .residual = residual.data(),
               .x = added.data(),
               .pre_weight = norm.data(),
               .y = normalized.data(),
               .weight_offset = args.norm.weight_offset,
               .eps = args.norm.eps,
               .m = m,
               .dim = s.k},
              nullptr);
      args.m = m;
      args.y = want.data();
      Gemv(args, nullptr);
      const std::vector<uint8_t> all = want.Download();
      const DeviceBytes got(args.ldy * size);
      GemvArgs fused = args;
      fused.x = residual.data() + (m - 1) * s.k;
      fused.m = 1;
      fused.y = got.data();
      fused.normalizes = true;
      Gemv(fused, nullptr);
      const auto row = all.begin() + (m - 1) * args.ldy * size;
      EXPECT_EQ(got.Download(), std::vector<uint8_t>(row, row + args.ldy * size))
          << static_cast<int>(format) << ", row " << m - 1 << " of " << m;
    }
  }
};

// A row has the bits of the two kernels, for any number of rows.
TEST_F(NormGemvTest, HasTheBitsOfAddNormAndGemv) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (WeightFormat format : FormatsWith(dtype)) {
      Check(dtype, format, {.n = 1, .k = 8});
      Check(dtype, format, {.n = 40, .k = 264, .has_bias = true});
      Check(dtype, format, {.n = 42, .k = 1032, .activates = true});
    }
  }
  Check(DType::kBFloat16, WeightFormat::kBFloat16, {.n = 17, .k = 2048});
  Check(DType::kBFloat16, WeightFormat::kQ4, {.n = 17, .k = kMaxNormGemvK});
}

// With several tiles for each block.
TEST_F(NormGemvTest, BlocksWalkOverTiles) {
  for (WeightFormat format : FormatsWith(DType::kBFloat16)) {
    Check(DType::kBFloat16, format, {.n = 300, .k = 72});
    Check(DType::kBFloat16, format, {.n = 300, .k = 72, .activates = true});
  }
}

TEST_F(NormGemvTest, ChecksWhatItGets) {
  const float weight = 1;
  const GemvArgs good{.n = 8, .k = 16, .m = 1, .normalizes = true, .norm = {.weight = &weight}};
  const auto refuses = [&](auto change) {
    GemvArgs args = good;
    change(args);
    EXPECT_ANY_THROW(Gemv(args, nullptr));
  };
  refuses([](GemvArgs& args) { args.m = 2; });
  refuses([](GemvArgs& args) { args.k = kMaxNormGemvK + 8; });
  refuses([](GemvArgs& args) { args.norm.weight = nullptr; });
  // Blocks would read what others have added.
  refuses([](GemvArgs& args) { args.float_output = args.accumulate = true; });
  refuses([](GemvArgs& args) {
    args.dtype = DType::kFloat32;
    args.format = WeightFormat::kFloat32;
  });
  EXPECT_ANY_THROW(BatchGemv(good, nullptr));
  EXPECT_ANY_THROW(Gemm(good, nullptr));
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
