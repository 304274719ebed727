#include "support/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

namespace mlc_native {
namespace {

// Pearson's statistic of counts that should be equal.
double ChiSquare(const std::vector<int64_t>& counts) {
  double total = 0;
  for (int64_t count : counts) total += static_cast<double>(count);
  const double expected = total / static_cast<double>(counts.size());
  double statistic = 0;
  for (int64_t count : counts) {
    const double difference = static_cast<double>(count) - expected;
    statistic += difference * difference / expected;
  }
  return statistic;
}

// Mean plus five standard deviations of a chi-square variable.
double Bound(double degrees) { return degrees + 5 * std::sqrt(2 * degrees); }

TEST(Random, IsAFunctionOfItsArguments) {
  EXPECT_EQ(RandomUniform(1, 2, 3), RandomUniform(1, 2, 3));
  EXPECT_NE(RandomUniform(1, 2, 3), RandomUniform(2, 2, 3));
  EXPECT_NE(RandomUniform(1, 2, 3), RandomUniform(1, 3, 3));
  EXPECT_NE(RandomUniform(1, 2, 3), RandomUniform(1, 2, 4));
  EXPECT_NE(RandomUniform(1, 2, 3), RandomUniform(1, 3, 2));
}

TEST(Random, ValuesNeverChange) {
  // Seeds are part of what users write down; a change of the generator would break them.
  EXPECT_EQ(MixBits(0), 0xe220a8397b1dcdafULL);  // first output of SplitMix64 with state 0
  EXPECT_EQ(MixBits(1), 0x910a2dec89025cc1ULL);
}

TEST(Random, StaysBelowOne) {
  for (uint64_t i = 0; i < 100000; ++i) {
    const double u = RandomUniform(i, i * 7, ~i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
  }
}

TEST(Random, IsUniformAlongEachArgument) {
  constexpr int kBins = 256;
  constexpr int kDraws = 200000;
  for (int argument = 0; argument < 3; ++argument) {
    std::vector<int64_t> counts(kBins);
    for (int i = 0; i < kDraws; ++i) {
      std::array<uint64_t, 3> at = {42, 0, 17};
      at[argument] = static_cast<uint64_t>(i);
      ++counts[static_cast<size_t>(RandomUniform(at[0], at[1], at[2]) * kBins)];
    }
    EXPECT_LT(ChiSquare(counts), Bound(kBins - 1)) << "argument " << argument;
  }
}

TEST(Random, NeighboursAreIndependent) {
  constexpr size_t kBins = 32;
  std::vector<int64_t> by_position(kBins * kBins), by_sequence(kBins * kBins);
  const auto bin = [](uint64_t sequence, uint64_t position) {
    return static_cast<size_t>(RandomUniform(7, sequence, position) * kBins);
  };
  for (uint64_t i = 0; i < 200000; ++i) {
    ++by_position[bin(0, i) * kBins + bin(0, i + 1)];
    ++by_sequence[bin(0, i) * kBins + bin(1, i)];
  }
  EXPECT_LT(ChiSquare(by_position), Bound(kBins * kBins - 1));
  EXPECT_LT(ChiSquare(by_sequence), Bound(kBins * kBins - 1));
}

TEST(Random, DoesNotRepeat) {
  std::set<double> seen;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (uint64_t sequence = 0; sequence < 20; ++sequence) {
      for (uint64_t position = 0; position < 100; ++position) {
        seen.insert(RandomUniform(seed, sequence, position));
      }
    }
  }
  EXPECT_EQ(seen.size(), 20u * 20u * 100u);
}

}  // namespace
}  // namespace mlc_native
