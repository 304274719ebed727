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
  EXPECT_TRUE((ChangedBitIsFound<31, WeightFormat::kBFloat16>(isa())));
  EXPECT_TRUE((ChangedBitIsFound<5, WeightFormat::kFloat8>(isa())));
}

// A matrix that is wrong in every row alike.
TEST_P(SelfCheckTest, OtherValuesAreFound) {
  LinearKernels wrong = isa();
  static const LinearKernels* known;
  known = &isa();
  wrong.linear = [](const PackedLinear& w, const LinearArgs& a, int64_t begin, int64_t end) {
    known->linear(w, a, begin, end);
    if (w.format != WeightFormat::kBFloat16) return;
    for (int64_t row = 0; row < a.m; ++row) a.y[row * a.ldy] += 0.001f;
  };
  EXPECT_FALSE(MultipliesLike(wrong, isa()));
}

class TilesTest : public KernelTest {
 protected:
  void SetUp() override {
    const std::vector<std::string_view> names = AvailableIsas();
    if (std::ranges::find(names, "avx512_bf16") == names.end()) {
      GTEST_SKIP() << "without AVX-512 with BF16";
    }
  }

  PackedLinear Pack(WeightFormat format, int64_t n, int64_t k, const Floats& weights) {
    packed_ = AlignedBuffer(PackedLinearBytes(isa(), format, n, k));
    const PackedLinear w = MakePackedLinear(isa(), format, n, k, packed_.data());
    PackLinear(w, 0, {.dtype = DType::kFloat32, .data = weights.data(), .ld = k, .rows = n});
    return w;
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

 private:
  AlignedBuffer packed_;
};

TEST_P(TilesTest, MultiplyLikeVectors) {
  EXPECT_TRUE(MultipliesLike(isa(), KernelsNamed("avx512_bf16")));
}

TEST_P(TilesTest, MultiplyAsManyGroupsAsThereAre) {
  const CpuKernels& known = KernelsNamed("avx512_vnni");
  const int64_t n = 40, k = 8192;
  const Floats weights = Random(n * k), x = Random(33 * k);
  for (const WeightFormat format : kWeightFormats) {
    if (!SumsIntegers(format)) continue;
    const PackedLinear w = Pack(format, n, k, weights);
    for (const int64_t rows : {8, 12, 16, 17, 33}) {
      const Floats got = Product(isa(), w, x, rows), want = Product(known, w, x, rows);
      EXPECT_TRUE(SameBits(got.data(), want.data(), rows * n))
          << "format " << static_cast<int>(format) << " rows " << rows;
    }
  }
}

// As tdpbf16ps adds 16 pairs of k, starting with `sum`.
float AddedPairs(float sum, const float* x, const float* w, int64_t k) {
  float even = 0, odd = 0;
  for (int64_t i = 0; i < k; i += 2) {
    even += x[i] * w[i];  // exact before it is added
    if (i + 1 < k) odd += x[i + 1] * w[i + 1];
  }
  return sum + (even + odd);
}

TEST_P(TilesTest, AddPairsInTheirOrder) {
  const int64_t n = 70, k = 777, rows = 45;
  Floats weights = Random(n * k), x = Random(rows * k);
  for (float& value : weights) value = RoundTo(DType::kBFloat16, value);
  const PackedLinear w = Pack(WeightFormat::kBFloat16, n, k, weights);
  const Floats got = Product(isa(), w, x, rows);
  for (float& value : x) value = RoundTo(DType::kBFloat16, value);
  Floats want(got.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < n; ++column) {
      float& sum = want[row * n + column];
      for (int64_t i = 0; i < k; i += 32) {
        sum = AddedPairs(sum, &x[row * k + i], &weights[column * k + i],
                         std::min<int64_t>(32, k - i));
      }
    }
  }
  EXPECT_TRUE(SameBits(got.data(), want.data(), rows * n));
}

#if defined(__x86_64__)
std::string TilesName() {
  const std::vector<std::string> names = IsaNames();
  const auto name = std::ranges::find_if(
      names, [](const std::string& isa) { return isa.starts_with("avx512_amx"); });
  return name == names.end() ? "avx512_amx_emulated" : *name;
}
INSTANTIATE_TEST_SUITE_P(Isa, TilesTest, testing::Values(TilesName()),
                         [](const auto& info) { return info.param; });
#endif
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TilesTest);

INSTANTIATE_TEST_SUITE_P(Isa, SelfCheckTest, testing::ValuesIn(IsaNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace mlc_native::kernels
