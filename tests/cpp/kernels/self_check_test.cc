#include "kernels/self_check.h"

#include <gtest/gtest.h>

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
}

TEST(SelfCheck, EmulatedTilesMultiplyLikeVnni) {
  const std::vector<std::string> names = IsaNames();
  if (std::ranges::find(names, "avx512_amx_emulated") == names.end()) {
    GTEST_SKIP() << "without AVX-512 with BF16";
  }
  EXPECT_TRUE(MultipliesLike(KernelsNamed("avx512_amx_emulated"), KernelsNamed("avx512_bf16")));
}

INSTANTIATE_TEST_SUITE_P(Isa, SelfCheckTest, testing::ValuesIn(IsaNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace mlc_native::kernels
