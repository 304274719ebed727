#include "sampling/row_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "sampling/infinity.h"

namespace mlc_native {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> RandomRow(size_t size, float deviation, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> row(size);
  for (float& value : row) value = normal(random);
  return row;
}

// Around the borders of blocks and of vectors.
const std::vector<size_t> kSizes = {1, 2, 3, 15, 16, 17, 127, 128, 129, 255, 256, 257, 1000, 5000};

TEST(RowOps, ScanFindsTheMaximumOfEachBlock) {
  std::mt19937 random(1);
  RowScan scan;
  for (size_t size : kSizes) {
    const std::vector<float> row = RandomRow(size, 3.0f, random);
    ScanRow(row, &scan);
    EXPECT_FALSE(scan.has_nan);
    EXPECT_EQ(scan.max, *std::max_element(row.begin(), row.end()));
    ASSERT_EQ(scan.block_max.size(), NumRowBlocks(size));
    for (size_t b = 0; b < scan.block_max.size(); ++b) {
      const auto begin = row.begin() + b * kRowBlock;
      const auto end = row.begin() + std::min(size, (b + 1) * kRowBlock);
      EXPECT_EQ(scan.block_max[b], *std::max_element(begin, end));
    }
  }
}

TEST(RowOps, ScanFindsANanAnywhere) {
  RowScan scan;
  for (size_t size : {1, 17, 128, 300}) {
    for (size_t at = 0; at < size; ++at) {
      std::vector<float> row(size, 1.0f);
      row[at] = at % 2 == 0 ? kNan : -kNan;
      ScanRow(row, &scan);
      ASSERT_TRUE(scan.has_nan) << at << " of " << size;
    }
  }
}

TEST(RowOps, InfinitiesAreNoNan) {
  RowScan scan;
  std::vector<float> row(300, -kInf);
  ScanRow(row, &scan);
  EXPECT_FALSE(scan.has_nan);
  EXPECT_EQ(scan.max, -kInf);
  row[200] = kInf;
  ScanRow(row, &scan);
  EXPECT_FALSE(scan.has_nan);
  EXPECT_EQ(scan.max, kInf);
}

TEST(RowOps, ArgmaxIsTheFirstOfEqualTokens) {
  RowScan scan;
  for (size_t size : kSizes) {
    for (size_t at : {size_t{0}, size / 2, size - 1}) {
      std::vector<float> row(size, -1.0f);
      row[at] = 2.0f;
      row[size - 1] = 2.0f;
      ScanRow(row, &scan);
      EXPECT_EQ(FindArgmax(row, scan), static_cast<int32_t>(at)) << "of " << size;
    }
  }
  const std::vector<float> zeros = {-0.0f, 0.0f};
  ScanRow(zeros, &scan);
  EXPECT_EQ(FindArgmax(zeros, scan), 0);
}

TEST(RowOps, ExponentialIsAccurate) {
  EXPECT_EQ(ExpNonPositive(0.0f), 1.0f);
  for (float x = -87.0f; x < 0.0f; x += 0.00037f) {
    const double exact = std::exp(static_cast<double>(x));
    ASSERT_NEAR(ExpNonPositive(x) / exact, 1.0, 2.0 * 0x1p-23) << x;
  }
  for (float x : {-87.01f, -1e4f, std::numeric_limits<float>::lowest(), -kInf}) {
    EXPECT_EQ(ExpNonPositive(x), 0.0f) << x;
  }
}

TEST(RowOps, SumOfExponentialsIsAccurate) {
  std::mt19937 random(2);
  for (float deviation : {0.1f, 1.0f, 5.0f, 30.0f}) {
    for (size_t size : kSizes) {
      const std::vector<float> row = RandomRow(size, deviation, random);
      const float max = *std::max_element(row.begin(), row.end());
      double exact = 0;
      for (float value : row) exact += std::exp(static_cast<double>(value) - max);
      EXPECT_NEAR(std::log(SumExp(row, max)), std::log(exact), 1e-6) << size << ' ' << deviation;
    }
  }
}

TEST(RowOps, WeightsAndTheirBlockSums) {
  std::mt19937 random(3);
  RowScan scan;
  RowWeights weights;
  for (size_t size : kSizes) {
    std::vector<float> row = RandomRow(size, 2.0f, random);
    if (size > 2) row[size / 2] = -kInf;
    ScanRow(row, &scan);
    ExpRow(row, scan, 1 / 0.7f, &weights);
    ASSERT_EQ(weights.weights.size(), size);
    double sum = 0;
    for (size_t i = 0; i < size; ++i) {
      const double exact = std::exp((static_cast<double>(row[i]) - scan.max) / 0.7);
      EXPECT_NEAR(weights.weights[i], exact, 4e-6 * exact);
      // Alone as in the widest vectors of this machine, to the bit.
      ASSERT_EQ(weights.weights[i], ExpNonPositive((row[i] - scan.max) * (1 / 0.7f)));
      EXPECT_LE(weights.weights[i], weights.block_upper[i / kRowBlock]);
      sum += weights.weights[i];
    }
    EXPECT_NEAR(weights.sum, sum, 1e-6 * sum);
    EXPECT_NEAR(std::accumulate(weights.block_sums.begin(), weights.block_sums.end(), 0.0), sum,
                1e-6 * sum);
  }
}

RowWeights WeightsOf(std::vector<float> weights) {
  RowWeights row;
  row.block_sums.resize(NumRowBlocks(weights.size()));
  for (size_t i = 0; i < weights.size(); ++i) {
    row.block_sums[i / kRowBlock] += weights[i];
    row.sum += weights[i];
  }
  row.weights = std::move(weights);
  return row;
}

TEST(RowOps, DrawFollowsTheRunningSum) {
  std::vector<float> weights(400);
  weights[3] = weights[130] = weights[131] = weights[390] = 0.25f;
  const RowWeights row = WeightsOf(weights);
  EXPECT_EQ(DrawFromRow(row, 0.0), 3);
  EXPECT_EQ(DrawFromRow(row, 0.2499), 3);
  EXPECT_EQ(DrawFromRow(row, 0.25), 130);
  EXPECT_EQ(DrawFromRow(row, 0.5), 131);
  EXPECT_EQ(DrawFromRow(row, 0.75), 390);
  EXPECT_EQ(DrawFromRow(row, 1 - 0x1p-53), 390);
}

TEST(RowOps, RoundingOfTheSumCannotMakeADrawFail) {
  RowWeights row = WeightsOf({0.0f, 0.5f, 0.5f, 0.0f});
  row.sum *= 1.001;
  EXPECT_EQ(DrawFromRow(row, 1 - 0x1p-53), 2);
  row.block_sums[0] *= 1.002;
  EXPECT_EQ(DrawFromRow(row, 1 - 0x1p-53), 2);
}

TEST(RowOps, KeepAboveZeroesTheRest) {
  std::vector<float> weights(300, 0.25f);
  weights[10] = 0.5f;
  weights[20] = 0.125f;
  RowWeights row = WeightsOf(weights);
  KeepAbove({.value = 0.25f, .num_ties = 150}, &row);
  EXPECT_EQ(row.weights[10], 0.5f);
  EXPECT_EQ(row.weights[20], 0.0f);
  EXPECT_EQ(std::count(row.weights.begin(), row.weights.end(), 0.25f), 150);
  EXPECT_EQ(row.weights[151], 0.25f);
  EXPECT_EQ(row.weights[152], 0.0f);
  EXPECT_EQ(row.sum, 150 * 0.25 + 0.5);
  EXPECT_EQ(row.block_sums.back(), 0.0);
}

}  // namespace
}  // namespace mlc_native
