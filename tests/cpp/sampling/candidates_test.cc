#include "sampling/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "sampling/infinity.h"
#include "support/check.h"

namespace mlc_native {
namespace {

std::vector<int32_t> Ids(const Candidates& candidates) {
  std::vector<int32_t> ids;
  for (const Candidate& item : candidates.items()) ids.push_back(item.token_id);
  return ids;
}

// Tokens from the best to the worst, without -inf.
std::vector<int32_t> Ranked(const std::vector<float>& row) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] != -kInf) ids.push_back(static_cast<int32_t>(i));
  }
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
  return ids;
}

std::vector<int32_t> FirstSorted(std::vector<int32_t> ids, size_t n) {
  ids.resize(std::min(n, ids.size()));
  std::sort(ids.begin(), ids.end());
  return ids;
}

// Multiples of 1 / 1024, so that sums are exact in any order and there are ties.
std::vector<float> RandomWeights(size_t size, int num_levels, std::mt19937& random) {
  std::vector<float> weights(size);
  for (float& weight : weights) weight = static_cast<float>(random() % num_levels) / 1024;
  return weights;
}

Candidates AllOf(const std::vector<float>& row) {
  Candidates candidates;
  const std::vector<float> upper(NumRowBlocks(row.size()), kInf);
  candidates.SelectAtLeast(row, upper, -kInf);
  return candidates;
}

TEST(Candidates, SelectAtLeastReadsOnlyBlocksThatMayHoldSome) {
  std::vector<float> row(300, -1.0f);
  row[5] = row[299] = 2.0f;
  row[140] = 3.0f;
  Candidates candidates;
  candidates.SelectAtLeast(row, std::vector<float>{2.0f, 3.0f, 2.0f}, 2.0f);
  EXPECT_EQ(Ids(candidates), std::vector<int32_t>({5, 140, 299}));
  candidates.SelectAtLeast(row, std::vector<float>{2.0f, 1.0f, 2.0f}, 2.0f);
  EXPECT_EQ(Ids(candidates), std::vector<int32_t>({5, 299}));
}

TEST(Candidates, TopKIsTheBeginningOfTheSortedRow) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> row(1 + random() % 1000);
    const int num_levels = round % 3 == 0 ? 4 : 100000;
    for (float& value : row) value = static_cast<float>(random() % num_levels) - 50.0f;
    for (size_t i = random() % 3; i < row.size(); i += 1 + random() % 50) row[i] = -kInf;
    RowScan scan;
    ScanRow(row, &scan);
    Candidates candidates;
    for (size_t k : {size_t{1}, size_t{2}, size_t{7}, size_t{20}, size_t{500}, row.size()}) {
      candidates.SelectTopK(row, scan, k);
      ASSERT_EQ(Ids(candidates), FirstSorted(Ranked(row), k)) << "k " << k << " of " << row.size();
    }
  }
}

TEST(Candidates, TopMassIsTheSmallestSetThatReachesIt) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    // Above and below the size from which a histogram is used.
    const size_t size = 1 + random() % (round % 2 == 0 ? 100 : 5000);
    const std::vector<float> row = RandomWeights(size, round % 3 == 0 ? 5 : 1025, random);
    Candidates all = AllOf(row);
    const double total = all.Sum();
    if (total == 0) continue;
    const double mass = static_cast<double>(1 + random() % static_cast<int>(total * 1024)) / 1024;
    const std::vector<int32_t> ranked = Ranked(row);
    size_t n = 0;
    for (double sum = 0; sum < mass; ++n) sum += row[ranked[n]];
    all.KeepTopMass(mass);
    ASSERT_EQ(Ids(all), FirstSorted(ranked, n)) << "mass " << mass << " of " << total;
  }
}

TEST(Candidates, TopMassKeepsAtLeastOneAndAtMostAll) {
  Candidates candidates = AllOf({0.25f, 1.0f, 0.5f});
  candidates.KeepTopMass(1e9);
  EXPECT_EQ(candidates.size(), 3u);
  candidates.KeepTopMass(1e-30);
  EXPECT_EQ(Ids(candidates), std::vector<int32_t>({1}));

  Candidates many = AllOf(std::vector<float>(5000, 0.5f));
  many.KeepTopMass(1e9);
  EXPECT_EQ(many.size(), 5000u);
  many.KeepTopMass(1000.0);
  EXPECT_EQ(many.size(), 2000u);
  EXPECT_EQ(many.items().back().token_id, 1999);
}

TEST(Candidates, KeepAtLeastIsInclusive) {
  Candidates candidates = AllOf({0.25f, 1.0f, 0.5f});
  candidates.KeepAtLeast(0.5f);
  EXPECT_EQ(Ids(candidates), std::vector<int32_t>({1, 2}));
}

TEST(Candidates, DrawFollowsTheRunningSum) {
  const Candidates candidates = AllOf({0.0f, 0.5f, 0.0f, 0.25f, 0.25f, 0.0f});
  EXPECT_EQ(candidates.Draw(0.0), 1);
  EXPECT_EQ(candidates.Draw(0.4999), 1);
  EXPECT_EQ(candidates.Draw(0.5), 3);
  EXPECT_EQ(candidates.Draw(0.75), 4);
  EXPECT_EQ(candidates.Draw(1 - 0x1p-53), 4);
  EXPECT_EQ(candidates.Draw(1.5), 4) << "a sum that rounding left short takes the last one";
  EXPECT_THROW(AllOf({0.0f}).Draw(0.5), InternalError);
}

}  // namespace
}  // namespace mlc_native
