// Weights that come as codes and scales: what is packed is what was given.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/packed_format.h"
#include "kernels/test_util.h"
#include "support/check.h"
#include "support/float8.h"
#include "support/half.h"

namespace mlc_native::kernels {
namespace {

struct Codes {
  int64_t rows, k, group;
  std::vector<int8_t> codes;
  std::vector<uint16_t> scales;
  bool is_mxfp4, is_float8, is_affine;

  Codes(WeightFormat format, int64_t rows, int64_t k, int64_t group)
      : rows(rows),
        k(k),
        group(group),
        codes(rows * k),
        is_mxfp4(format == WeightFormat::kMxfp4),
        is_float8(format == WeightFormat::kFloat8),
        is_affine(LayoutOf(format).scales == 2) {
    scales.resize(rows * groups() * words());
    const int half = 1 << (LayoutOf(format).code_bits - 1);
    for (size_t i = 0; i < codes.size(); ++i) {
      const int code = static_cast<int>(i * 7 % (2 * half));
      codes[i] = static_cast<int8_t>(is_mxfp4 ? code : code - half);
      if (!is_mxfp4 && TableOf(format) != nullptr) codes[i] = TableOf(format)[code];
      if (is_float8 && code % half == kNaNFloat8) codes[i] = 0;
    }
    for (size_t i = 0; i < scales.size(); i += words()) {
      const float scale = 0.01f * static_cast<float>(i + 1) * (i % 3 == 0 ? -1 : 1);
      if (is_float8) {
        std::memcpy(&scales[i], &scale, sizeof scale);
        continue;
      }
      scales[i] = is_mxfp4 ? FloatToBFloat16(std::ldexp(1.0f, static_cast<int>(i * 5 % 250) - 126))
                           : FloatToFloat16(scale);
      if (is_affine) scales[i + 1] = FloatToFloat16(0.5f - 9 * scale);
    }
  }
  int64_t groups() const { return (k + group - 1) / group; }
  int64_t words() const { return is_float8 || is_affine ? 2 : 1; }  // of a scale
  float Value(int64_t row, int64_t column) const {
    const uint16_t* stored = &scales[(row * groups() + column / group) * words()];
    const uint16_t scale = *stored;
    const int code = codes[row * k + column];
    if (is_float8) {
      float wide;
      std::memcpy(&wide, stored, sizeof wide);
      return Float8ToFloat(static_cast<uint8_t>(code)) * wide;
    }
    if (is_mxfp4) return BFloat16ToFloat(scale) * static_cast<float>(kMxfp4Doubled[code]);
    const float shift = is_affine ? Float16ToFloat(stored[1]) : 0;
    return Float16ToFloat(scale) * (static_cast<float>(code) + shift);
  }
  PackCodes Rows(int64_t begin, int64_t end) const {
    return {.codes = codes.data() + begin * k,
            .ld = k,
            .scales = scales.data() + begin * groups() * words(),
            .group = group,
            .rows = end - begin};
  }
};

class PackingTest : public KernelTest {};

TEST_P(PackingTest, CodesAndScalesAreKept) {
  for (const WeightFormat format : kWeightFormats) {
    if (LayoutOf(format).scale_bytes == 0) continue;
    const int64_t own = LayoutOf(format).group;
    for (const auto& [k, group] : {std::pair<int64_t, int64_t>{2 * own, own},
                                   {4 * own + 5, 2 * own},
                                   {3 * own - 1, 3 * own - 1}}) {
      const int64_t n = 41;
      const Codes source(format, n, k, group);
      const AlignedBuffer memory(PackedLinearBytes(isa(), format, n, k));
      std::memset(memory.data(), 0xff, memory.size());
      const PackedLinear packed = MakePackedLinear(isa(), format, n, k, memory.data());
      PackLinear(packed, 7, source.Rows(7, n));  // as parts of a fused matrix, any order
      PackLinear(packed, 0, source.Rows(0, 7));
      for (int32_t row = 0; row < n; ++row) {
        Floats values(k);
        GatherPackedRows(Threads(1), packed, {.ids = &row, .m = 1, .out = values.data(), .ldo = k});
        for (int64_t i = 0; i < k; ++i) ASSERT_EQ(values[i], source.Value(row, i)) << row << i;
      }
    }
  }
}

TEST_P(PackingTest, GroupsThatTheFormatCannotHoldAreABug) {
  const int64_t k = 320;
  const AlignedBuffer memory(PackedLinearBytes(isa(), WeightFormat::kFloat32, 8, k));
  const Codes source(WeightFormat::kQ4, 8, k, 40);
  EXPECT_THROW(PackLinear(MakePackedLinear(isa(), WeightFormat::kQ4, 8, k, memory.data()), 0,
                          source.Rows(0, 8)),
               InternalError);
  const Codes whole(WeightFormat::kQ4, 8, k, k);
  EXPECT_THROW(PackLinear(MakePackedLinear(isa(), WeightFormat::kFloat32, 8, k, memory.data()), 0,
                          whole.Rows(0, 8)),
               InternalError);
}

INSTANTIATE_TEST_SUITE_P(Isa, PackingTest, testing::ValuesIn(IsaNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace mlc_native::kernels
