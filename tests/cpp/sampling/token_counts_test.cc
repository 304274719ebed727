#include "sampling/token_counts.h"

#include <gtest/gtest.h>

#include <exception>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace mlc_native {
namespace {

using Counts = std::vector<std::pair<int32_t, int32_t>>;

Counts CountsOf(const TokenCounts& counts) {
  return Counts(counts.counts().begin(), counts.counts().end());
}

TEST(TokenCounts, InOrderOfFirstAppearance) {
  TokenCounts counts;
  for (int32_t id : {7, 0, 7, 151935, 0, 7}) counts.Add(id);
  EXPECT_EQ(CountsOf(counts), (Counts{{7, 3}, {0, 2}, {151935, 1}}));
  counts.Clear();
  EXPECT_TRUE(counts.counts().empty());
  counts.Add(0);
  EXPECT_EQ(CountsOf(counts), (Counts{{0, 1}}));
}

TEST(TokenCounts, TakesOccurrencesBack) {
  TokenCounts counts;
  EXPECT_THROW(counts.Remove(1), std::exception);
  for (int32_t id : {7, 0, 7}) counts.Add(id);
  for (int32_t id : {7, 0}) counts.Remove(id);
  EXPECT_EQ(CountsOf(counts), (Counts{{7, 1}, {0, 0}}));
  EXPECT_THROW(counts.Remove(0), std::exception);
  counts.Add(0);
  EXPECT_EQ(CountsOf(counts), (Counts{{7, 1}, {0, 1}}));
}

TEST(TokenCounts, AgreesWithAMapOnLongAnswers) {
  std::mt19937 random(1);
  TokenCounts counts;
  std::map<int32_t, int32_t> expected;
  for (int i = 0; i < 100000; ++i) {
    // Multiples of a power of two would collide in a table without mixing.
    const auto id = static_cast<int32_t>(random() % 30000 * 1024);
    counts.Add(id);
    ++expected[id];
  }
  const Counts found = CountsOf(counts);
  EXPECT_EQ((std::map<int32_t, int32_t>(found.begin(), found.end())), expected);
  EXPECT_EQ(found.size(), expected.size());
}

}  // namespace
}  // namespace mlc_native
