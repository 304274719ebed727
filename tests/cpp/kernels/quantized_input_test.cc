// Inputs of quantized weights become the same codes on every ISA and on every machine: where only
// one group is added up, outputs are known to the bit.
#include <cmath>
#include <limits>

#include "kernels/packed_format.h"
#include "kernels/quantize.h"
#include "test_util.h"

namespace mlc_native::kernels {
namespace {

class QuantizedInputTest : public KernelTest {
 protected:
  // One column of weights times one group of inputs.
  float Run(WeightFormat format, const Floats& weights, const Floats& x) {
    const auto k = static_cast<int64_t>(x.size());
    const AlignedBuffer buffer(PackedLinearBytes(isa(), format, 1, k));
    const PackedLinear w = MakePackedLinear(isa(), format, 1, k, buffer.data());
    PackLinear(w, 0, {.dtype = DType::kFloat32, .data = weights.data(), .ld = k, .rows = 1});
    const AlignedBuffer workspace(LinearWorkspaceBytes(1, k));
    float y = kPoison;
    Linear(Threads(1), w,
           {.x = x.data(), .ldx = k, .m = 1, .y = &y, .ldy = 1, .workspace = workspace.data()});
    return y;
  }

  template <size_t kGroup, typename Quantize>
  void ExpectExact(WeightFormat format, int offset, Quantize quantize, const Floats& x,
                   const int8_t* table = nullptr) {
    const Floats weights = Random(kGroup);
    std::array<float, kGroup> group;
    std::copy(weights.begin(), weights.end(), group.begin());
    const auto quantized = quantize(group);
    float largest = 0;
    for (float value : x) largest = std::max(largest, std::fabs(value));
    const float scale = InputScaleOf(format, largest);
    const float inverse = HasExponentScale(format) ? 1 / scale : 127.0f / largest;
    int dot = 0;
    for (size_t i = 0; i < kGroup; ++i) {
      const int code = static_cast<int>(std::nearbyint(x[i] * inverse));  // ties to even
      const int weight = quantized.codes[i];
      dot += code * (table == nullptr ? weight - offset : table[weight]);
    }
    const float weight_scale = format == WeightFormat::kMxfp4 ? BFloat16ToFloat(quantized.scale)
                                                              : Float16ToFloat(quantized.scale);
    const float want = static_cast<float>(dot) * scale * weight_scale;
    const float got = Run(format, weights, x);
    EXPECT_TRUE(SameBits(&got, &want, 1)) << got << " is not " << want;
  }
  void ExpectExact(const Floats& q8, const Floats& q4) {
    ExpectExact<kQ8Group>(WeightFormat::kQ8, 128, [](const auto& x) { return QuantizeQ8(x); }, q8);
    ExpectExact<kShortQ8Group>(
        WeightFormat::kQ8Group32, 128, [](const auto& x) { return QuantizeQ8(x); },
        Floats(q8.begin(), q8.begin() + kShortQ8Group));
    ExpectExact<kQ6Group>(WeightFormat::kQ6, 32, [](const auto& x) { return QuantizeQ6(x); }, q8);
    ExpectExact<kQ4Group>(WeightFormat::kQ4, 8, [](const auto& x) { return QuantizeQ4(x); }, q4);
    ExpectExact<kMxfp4Group>(
        WeightFormat::kMxfp4, 0, [](const auto& x) { return QuantizeMxfp4(x); }, q4, kMxfp4Doubled);
  }
};

TEST_P(QuantizedInputTest, IsExactForRandomValuesOfEverySize) {
  for (float amplitude : {1e-29f, 1e-3f, 1.0f, 1e3f, 1e30f}) {
    for (int trial = 0; trial < 20; ++trial) {
      ExpectExact(Random(kQ8Group, amplitude), Random(kQ4Group, amplitude));
    }
  }
}

// A largest magnitude of 127 makes the codes the values themselves, rounded to nearest even.
TEST_P(QuantizedInputTest, HalvesGoToTheEvenCode) {
  Floats x;
  for (int i = 0; i < kQ8Group; ++i) x.push_back(static_cast<float>(i - 17) + 0.5f);
  x[5] = -127.0f;
  x[7] = -0.0f;
  x[9] = 126.5f;
  Floats x4(x.begin(), x.begin() + kQ4Group);  // its scale is 1 up to 126
  x4[5] = -100.0f;
  x4[9] = 98.5f;
  ExpectExact(x, x4);
}

TEST_P(QuantizedInputTest, DustIsZeroAndWhatIsNotFiniteSpoilsTheRow) {
  for (const WeightFormat format : kWeightFormats) {
    if (!SumsIntegers(format)) continue;
    const auto group = static_cast<size_t>(LayoutOf(format).group);
    const Floats weights = Random(static_cast<int64_t>(group));
    EXPECT_EQ(Run(format, weights, Floats(group, 1e-31f)), 0.0f);
    for (float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
      Floats x(group, 1.0f);
      x[group / 2] = bad;
      EXPECT_TRUE(std::isnan(Run(format, weights, x))) << bad;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, QuantizedInputTest, testing::ValuesIn(IsaNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace mlc_native::kernels
