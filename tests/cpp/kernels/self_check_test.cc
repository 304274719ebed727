#include "kernels/self_check.h"

#include <gtest/gtest.h>

#include "kernels/packed_format.h"
#include "kernels/test_util.h"

namespace mlc_native::kernels {
namespace {

using SelfCheckTest = KernelTest;

TEST_P(SelfCheckTest, AnIsaMultipliesLikeItself) { EXPECT_TRUE(MultipliesLike(isa(), isa())); }

TEST_P(SelfCheckTest, AnotherPanelWidthFails) {
  LinearKernels other = isa();
  other.panel_width *= 2;
  EXPECT_FALSE(MultipliesLike(other, isa()));
}

// Changes the last bit of one output.
template <int64_t kRow, WeightFormat kFormat>
bool ChangedBitIsFound(const CpuKernels& isa) {
  static const LinearKernels* known;
  known = &isa;
  LinearKernels wrong = isa;
  wrong.linear = [](const PackedLinear& w, const LinearArgs& a, int64_t begin, int64_t end) {
    known->linear(w, a, begin, end);
    if (w.format != kFormat || a.m <= kRow) return;
    float& y = a.y[kRow * a.ldy + w.n - 1];
    y = std::nextafter(y, 2 * y);
  };
  return !MultipliesLike(wrong, isa);
}

TEST_P(SelfCheckTest, OneBitInARowOfOneFormatIsFound) {
  EXPECT_TRUE((ChangedBitIsFound<0, WeightFormat::kQ8>(isa())));
  EXPECT_TRUE((ChangedBitIsFound<15, WeightFormat::kQ4>(isa())));
  EXPECT_TRUE((ChangedBitIsFound<40, WeightFormat::kMxfp4>(isa())));
  EXPECT_TRUE((ChangedBitIsFound<7, WeightFormat::kQ8Group32>(isa())));
  EXPECT_TRUE((ChangedBitIsFound<15, WeightFormat::kQ6>(isa())));
  EXPECT_TRUE((ChangedBitIsFound<16, WeightFormat::kQ4Affine>(isa())));
  EXPECT_TRUE((ChangedBitIsFound<22, WeightFormat::kQ6Affine>(isa())));
  EXPECT_TRUE((ChangedBitIsFound<3, WeightFormat::kQ6Group16>(isa())));
  EXPECT_TRUE((ChangedBitIsFound<11, WeightFormat::kQ6AffineGroup16>(isa())));
  EXPECT_TRUE((ChangedBitIsFound<9, WeightFormat::kQ4Group16>(isa())));
  EXPECT_TRUE((ChangedBitIsFound<17, WeightFormat::kIq4>(isa())));
  EXPECT_TRUE((ChangedBitIsFound<40, WeightFormat::kFp4Group16>(isa())));
  EXPECT_TRUE((ChangedBitIsFound<2, WeightFormat::kIq3>(isa())));
  EXPECT_TRUE((ChangedBitIsFound<33, WeightFormat::kIq2Group16>(isa())));
  EXPECT_TRUE((ChangedBitIsFound<14, WeightFormat::kQ4AffineGroup16>(isa())));
  EXPECT_TRUE((ChangedBitIsFound<1, WeightFormat::kQ2AffineGroup16>(isa())));
  EXPECT_TRUE((ChangedBitIsFound<12, WeightFormat::kQ2>(isa())));
}

// Products of quantized weights, which do without BF16.
class EmulatedTilesTest : public KernelTest {
 protected:
  void SetUp() override {
    const std::vector<std::string_view> names = AvailableIsas();
    if (std::ranges::find(names, "avx512_vnni") == names.end()) {
      GTEST_SKIP() << "without AVX-512 with VNNI";
    }
  }

  Floats Product(const CpuKernels& isa, const PackedLinear& w, const Floats& x, int64_t rows) {
    const AlignedBuffer workspace(LinearWorkspaceBytes(rows, w.k));
    Floats y(rows * w.n);
    Linear({.isa = &isa, .pool = Threads(1).pool}, w,
           {.x = x.data(),
            .ldx = w.k,
            .m = rows,
            .y = y.data(),
            .ldy = w.n,
            .workspace = workspace.data()});
    return y;
  }
};

TEST_P(EmulatedTilesTest, MultiplyLikeVnni) {
  EXPECT_TRUE(MultipliesLike(KernelsNamed(GetParam()), KernelsNamed("avx512_vnni")));
}

TEST_P(EmulatedTilesTest, MultiplyAsManyGroupsAsThereAre) {
  const CpuKernels &tiles = KernelsNamed(GetParam()), &known = KernelsNamed("avx512_vnni");
  const int64_t n = 40, k = 8192;
  const Floats weights = Random(n * k), x = Random(33 * k);
  for (const WeightFormat format : kWeightFormats) {
    if (!SumsIntegers(format)) continue;
    const AlignedBuffer packed(PackedLinearBytes(known, format, n, k));
    const PackedLinear w = MakePackedLinear(known, format, n, k, packed.data());
    PackLinear(w, 0, {.dtype = DType::kFloat32, .data = weights.data(), .ld = k, .rows = n});
    for (const int64_t rows : {8, 12, 16, 17, 33}) {
      const Floats got = Product(tiles, w, x, rows), want = Product(known, w, x, rows);
      EXPECT_TRUE(SameBits(got.data(), want.data(), rows * n))
          << "format " << static_cast<int>(format) << " rows " << rows;
    }
  }
}

#if defined(__x86_64__)
INSTANTIATE_TEST_SUITE_P(Isa, EmulatedTilesTest, testing::Values("avx512_amx_emulated"),
                         [](const auto& info) { return info.param; });
#endif
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EmulatedTilesTest);

INSTANTIATE_TEST_SUITE_P(Isa, SelfCheckTest, testing::ValuesIn(IsaNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace mlc_native::kernels
