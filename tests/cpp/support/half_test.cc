#include "support/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <optional>
#include <random>

#include "mlc_native/detail/dtype.h"

namespace mlc_native {
namespace {

// The 16-bit pattern nearest to x, ties to even, by binary search: magnitudes are ordered like
// their bits.
template <typename Decode>
uint16_t NearestEven(float x, uint16_t infinity, Decode decode) {
  const double magnitude = std::fabs(x);
  uint16_t below = 0, above = infinity;
  while (below + 1 < above) {
    const auto middle = static_cast<uint16_t>((below + above) / 2);
    (decode(middle) <= magnitude ? below : above) = middle;
  }
  const double lower = decode(below);
  // For rounding, infinity stands where the next number would be.
  const double upper = above == infinity ? 2 * lower - decode(below - 1) : decode(above);
  const double to_lower = magnitude - lower, to_upper = upper - magnitude;
  const bool up = to_upper < to_lower || (to_upper == to_lower && below % 2 == 1);
  return static_cast<uint16_t>((up ? above : below) | (std::signbit(x) ? 0x8000 : 0));
}

TEST(HalfTest, EveryFloat16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float x = Float16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(Float16ToFloat(FloatToFloat16(x))));
    } else {
      ASSERT_EQ(FloatToFloat16(x), bits);
    }
  }
}

TEST(HalfTest, EveryBFloat16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float x = BFloat16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(x))));
    } else {
      ASSERT_EQ(FloatToBFloat16(x), bits);
    }
  }
}

TEST(HalfTest, KnownFloat16Values) {
  EXPECT_EQ(Float16ToFloat(0x3c00), 1.0f);
  EXPECT_EQ(Float16ToFloat(0xc000), -2.0f);
  EXPECT_EQ(Float16ToFloat(0x7bff), 65504.0f);
  EXPECT_EQ(Float16ToFloat(0x0001), 0x1p-24f);
  EXPECT_EQ(FloatToFloat16(65519.0f), 0x7bff);
  EXPECT_EQ(FloatToFloat16(65520.0f), 0x7c00);  // ties to even: infinity
  EXPECT_EQ(FloatToFloat16(-1e30f), 0xfc00);
  EXPECT_EQ(FloatToFloat16(0x1p-25f), 0x0000);  // tie between 0 and the least subnormal
  EXPECT_EQ(FloatToFloat16(0x1.8p-25f), 0x0001);
  EXPECT_EQ(FloatToFloat16(-0.0f), 0x8000);
}

TEST(HalfTest, RoundsToNearestEven) {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isfinite(x)) continue;
    ASSERT_EQ(FloatToBFloat16(x), NearestEven(x, 0x7f80, BFloat16ToFloat)) << x;
    int exponent;
    const float scaled = std::ldexp(std::frexp(x, &exponent), static_cast<int>(random() % 48) - 28);
    ASSERT_EQ(FloatToFloat16(scaled), NearestEven(scaled, 0x7c00, Float16ToFloat)) << scaled;
  }
}

TEST(DTypeTest, NamesRoundTrip) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    EXPECT_EQ(ParseDType(DTypeName(dtype)), dtype);
  }
  EXPECT_EQ(ParseDType("int8"), std::nullopt);
  EXPECT_EQ(DTypeSize(DType::kFloat32), 4u);
  EXPECT_EQ(DTypeSize(DType::kBFloat16), 2u);
}

}  // namespace
}  // namespace mlc_native
