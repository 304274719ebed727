#include "kernels/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "support/half.h"

namespace mlc_native::kernels {
namespace {

template <size_t kSize>
using Group = std::array<float, kSize>;

template <int64_t kSize>
double Value(const QuantizedGroup<kSize>& group, int i, int offset) {
  return static_cast<double>(Float16ToFloat(group.scale)) * (group.codes[i] - offset);
}

template <size_t kSize, int64_t kGroup>
double SquaredError(const Group<kSize>& x, const QuantizedGroup<kGroup>& group, int offset) {
  double error = 0;
  for (int i = 0; i < kGroup; ++i) error += std::pow(x[i] - Value(group, i, offset), 2);
  return error;
}

template <size_t kSize>
Group<kSize> RandomGroup(std::mt19937& random, float deviation) {
  std::normal_distribution<float> normal(0, deviation);
  Group<kSize> x;
  for (float& value : x) value = normal(random);
  return x;
}

TEST(QuantizeQ8, IsWithinHalfAStepOfEveryValue) {
  std::mt19937 random(1);
  for (float deviation : {1e-6f, 1e-3f, 0.05f, 1.0f, 1e4f}) {
    for (int trial = 0; trial < 100; ++trial) {
      const auto x = RandomGroup<kQ8Group>(random, deviation);
      const auto group = QuantizeQ8(x);
      const double scale = Float16ToFloat(group.scale);
      double largest = 0;
      for (float value : x) largest = std::max<double>(largest, std::fabs(value));
      EXPECT_LE(scale, largest / 127 * 1.001 + 0x1p-24);  // no step wider than it has to be
      for (int i = 0; i < kQ8Group; ++i) {
        ASSERT_NEAR(Value(group, i, 128), x[i], scale * 0.50001);
        ASSERT_GE(group.codes[i], 1);  // -128 is never used: symmetric
      }
    }
  }
}

TEST(QuantizeQ4, IsBetterThanTheScaleOfTheLargestValue) {
  std::mt19937 random(2);
  double best = 0, plain = 0, squares = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const auto x = RandomGroup<kQ4Group>(random, 0.02f);
    best += SquaredError(x, QuantizeQ4(x), 8);
    float extreme = 0;
    for (float value : x) extreme = std::fabs(value) > std::fabs(extreme) ? value : extreme;
    for (float value : x) {
      const double code = std::clamp(std::nearbyint(value / (extreme / -8)), -8.0f, 7.0f);
      plain += std::pow(value - code * (extreme / -8), 2);
      squares += value * value;
    }
  }
  EXPECT_LT(best, 0.90 * plain);
  EXPECT_LT(std::sqrt(best / squares), 0.082);
}

TEST(QuantizeQ4, KeepsWhatTheFormatCanHold) {
  Group<kQ4Group> x;
  for (int i = 0; i < kQ4Group; ++i) x[i] = 0.25f * static_cast<float>(i % 16 - 8);
  for (float sign : {1.0f, -1.0f}) {
    for (float& value : x) value *= sign;
    const auto group = QuantizeQ4(x);
    for (int i = 0; i < kQ4Group; ++i) EXPECT_EQ(Value(group, i, 8), x[i]) << i;
  }
}

TEST(QuantizeQ6, HasASixteenthOfTheErrorOfQ4) {
  std::mt19937 random(3);
  double six = 0, plain = 0, squares = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const auto x = RandomGroup<kQ6Group>(random, 0.02f);
    six += SquaredError(x, QuantizeQ6(x), 32);
    float extreme = 0;
    for (float value : x) extreme = std::fabs(value) > std::fabs(extreme) ? value : extreme;
    for (float value : x) {
      const double code = std::clamp(std::nearbyint(value / (extreme / -32)), -32.0f, 31.0f);
      plain += std::pow(value - code * (extreme / -32), 2);
      squares += value * value;
    }
  }
  EXPECT_LT(six, plain);
  EXPECT_LT(std::sqrt(six / squares), 0.082 / 3.5);
}

TEST(QuantizeQ6, KeepsWhatTheFormatCanHold) {
  Group<kQ6Group> x;
  for (int i = 0; i < kQ6Group; ++i) x[i] = 0.25f * static_cast<float>(i - 32);
  for (float sign : {1.0f, -1.0f}) {
    for (float& value : x) value *= sign;
    const auto group = QuantizeQ6(x);
    for (int i = 0; i < kQ6Group; ++i) EXPECT_EQ(Value(group, i, 32), x[i]) << i;
  }
}

float Mxfp4Value(const QuantizedGroup<kMxfp4Group>& group, int i) {
  return BFloat16ToFloat(group.scale) * static_cast<float>(kMxfp4Doubled[group.codes[i]]);
}

TEST(QuantizeMxfp4, KeepsWhatTheFormatCanHold) {
  for (int exponent = -127; exponent <= 125; ++exponent) {
    for (const int largest : {1, 2, 3, 4, 6, 8, 12}) {  // doubled
      Mxfp4Values x = {};
      for (int i = 0; i < kMxfp4Group; ++i) {
        const int doubled = kMxfp4Doubled[i % 16];
        if (std::abs(doubled) > largest) continue;
        x[i] = std::ldexp(static_cast<float>(doubled), exponent - 1);
      }
      const auto group = QuantizeMxfp4(x);
      for (int i = 0; i < kMxfp4Group; ++i) ASSERT_EQ(Mxfp4Value(group, i), x[i]) << exponent;
    }
  }
}

TEST(QuantizeMxfp4, GoesToTheNearestValueAndFromTheMiddleToTheEvenOne) {
  Mxfp4Values x = {4.0f};
  const std::pair<float, float> kRounded[] = {{0.25f, 0},  {0.26f, 0.5f}, {0.75f, 1}, {0.74f, 0.5f},
                                              {1.25f, 1},  {1.75f, 2},    {2.5f, 2},  {2.51f, 3},
                                              {-3.5f, -4}, {5, 4},        {5.1f, 6},  {-7.9f, -6}};
  int at = 1;
  for (const auto& [value, want] : kRounded) x[at++] = value;
  const auto group = QuantizeMxfp4(x);
  at = 1;
  for (const auto& [value, want] : kRounded) EXPECT_EQ(Mxfp4Value(group, at++), want) << value;
}

TEST(Quantize, ZerosStayZeros) {
  for (int i = 0; i < kQ8Group; ++i) EXPECT_EQ(Value(QuantizeQ8(Group<kQ8Group>{}), i, 128), 0);
  for (int i = 0; i < kQ4Group; ++i) EXPECT_EQ(Value(QuantizeQ4({}), i, 8), 0);
  for (int i = 0; i < kQ6Group; ++i) EXPECT_EQ(Value(QuantizeQ6({}), i, 32), 0);
  for (int i = 0; i < kMxfp4Group; ++i) EXPECT_EQ(Mxfp4Value(QuantizeMxfp4({}), i), 0);
}

TEST(Quantize, ValuesThatAreNotFiniteMakeTheGroupNaN) {
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    Group<kQ8Group> eight = {};
    Group<kQ4Group> four = {};
    eight[5] = four[5] = bad;
    EXPECT_TRUE(std::isnan(Float16ToFloat(QuantizeQ8(eight).scale)));
    EXPECT_TRUE(std::isnan(Float16ToFloat(QuantizeQ6(eight).scale)));
    EXPECT_TRUE(std::isnan(Float16ToFloat(QuantizeQ4(four).scale)));
    EXPECT_TRUE(std::isnan(BFloat16ToFloat(QuantizeMxfp4(four).scale)));
  }
}

}  // namespace
}  // namespace mlc_native::kernels
