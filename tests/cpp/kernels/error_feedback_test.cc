#include "kernels/error_feedback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/packed_format.h"
#include "kernels/quantize.h"
#include "support/half.h"
#include "support/thread_pool.h"

namespace mlc_native::kernels {
namespace {

constexpr int64_t kBlock = ErrorFeedback::kBlock;

// Rows of which neighbouring columns have much in common, as those of activations have.
std::vector<float> CorrelatedInputs(int64_t m, int64_t k, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(m * k));
  for (int64_t i = 0; i < m; ++i) {
    float common = 0;
    for (int64_t c = 0; c < k; ++c) {
      common = 0.9f * common + 0.4f * normal(random);
      x[static_cast<size_t>(i * k + c)] = common * (1 + static_cast<float>(c % 5));
    }
  }
  return x;
}

std::vector<float> NormalWeights(int64_t n, int64_t k) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> w(static_cast<size_t>(n * k));
  for (float& value : w) value = normal(random);
  return w;
}

struct Rounded {
  std::vector<int8_t> codes;
  std::vector<uint16_t> scales;
  int64_t group;

  bool operator==(const Rounded&) const = default;
  // Element c of row `row` of [n, k].
  double Value(int64_t row, int64_t c, int64_t k) const {
    const int64_t groups = (k + group - 1) / group;
    return static_cast<double>(Scale(row, c, groups)) * codes[static_cast<size_t>(row * k + c)];
  }
  float Scale(int64_t row, int64_t c, int64_t groups) const {
    return Float16ToFloat(scales[static_cast<size_t>(row * groups + c / group)]);
  }
};

Rounded RoundFor(const std::vector<float>& x, const std::vector<float>& w, int64_t k,
                 WeightFormat format, int num_threads = 1) {
  ThreadPool pool(num_threads);
  const Cpu cpu{&SelectCpuKernels(), &pool};
  const auto m = static_cast<int64_t>(x.size()) / k;
  const ErrorFeedback feedback(cpu, {.x = x.data(), .ldx = k, .m = m}, k);
  const PanelLayout layout = LayoutOf(format);
  Rounded rounded{.codes = std::vector<int8_t>(w.size()),
                  .scales = std::vector<uint16_t>(w.size() / static_cast<size_t>(k) *
                                                  static_cast<size_t>(layout.Groups(k))),
                  .group = layout.group};
  feedback.Round(format, w, rounded.codes.data(), rounded.scales.data());
  return rounded;
}

// A matrix of doubles [n, n].
struct Square {
  int64_t n;
  std::vector<double> values;

  explicit Square(int64_t size) : n(size), values(static_cast<size_t>(size * size)) {}
  double& at(int64_t i, int64_t j) { return values[static_cast<size_t>(i * n + j)]; }
};

// The inverse of x^T x + 1 % of its mean diagonal, of the columns from `first` on (Gauss-Jordan).
Square InverseMoments(const std::vector<float>& x, int64_t k, int64_t first, int64_t count) {
  Square h(count), inverse(count);
  const auto m = static_cast<int64_t>(x.size()) / k;
  double trace = 0;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t r = 0; r < m; ++r) {
        h.at(i, j) += static_cast<double>(x[static_cast<size_t>(r * k + first + i)]) *
                      x[static_cast<size_t>(r * k + first + j)];
      }
    }
    trace += h.at(i, i);
    inverse.at(i, i) = 1;
  }
  for (int64_t i = 0; i < count; ++i) h.at(i, i) += 0.01 * trace / static_cast<double>(count);
  for (int64_t p = 0; p < count; ++p) {
    const double pivot = h.at(p, p);
    for (int64_t j = 0; j < count; ++j) {
      h.at(p, j) /= pivot;
      inverse.at(p, j) /= pivot;
    }
    for (int64_t i = 0; i < count; ++i) {
      if (i == p) continue;
      const double factor = h.at(i, p);
      for (int64_t j = 0; j < count; ++j) {
        h.at(i, j) -= factor * h.at(p, j);
        inverse.at(i, j) -= factor * inverse.at(p, j);
      }
    }
  }
  return inverse;
}

std::vector<Square> InverseMomentsOfBlocks(const std::vector<float>& x, int64_t k) {
  std::vector<Square> inverses;
  for (int64_t first = 0; first < k; first += kBlock) {
    inverses.push_back(InverseMoments(x, k, first, std::min(kBlock, k - first)));
  }
  return inverses;
}

// How many codes differ from those of Optimal Brain Quantization with the same scales, which
// removes each rounded column from the inverse.
int64_t CountOtherCodes(const Rounded& rounded, const std::vector<Square>& inverses,
                        const std::vector<float>& w, int64_t k, double low, double high) {
  const auto n = static_cast<int64_t>(w.size()) / k;
  const int64_t groups = (k + rounded.group - 1) / rounded.group;
  int64_t others = 0;
  for (int64_t first = 0; first < k; first += kBlock) {
    Square inverse = inverses[static_cast<size_t>(first / kBlock)];
    const int64_t count = inverse.n;
    std::vector<double> left(static_cast<size_t>(n * count));
    const auto at = [&](int64_t row, int64_t i) -> double& {
      return left[static_cast<size_t>(row * count + i)];
    };
    for (int64_t row = 0; row < n; ++row) {
      for (int64_t i = 0; i < count; ++i) at(row, i) = w[static_cast<size_t>(row * k + first + i)];
    }
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t row = 0; row < n; ++row) {
        const double scale = rounded.Scale(row, first + i, groups);
        const double code =
            scale == 0 ? 0 : std::clamp(std::nearbyint(at(row, i) / scale), low, high);
        others += code != rounded.codes[static_cast<size_t>(row * k + first + i)] ? 1 : 0;
        // As ours was rounded, so that one other code does not make all others.
        const double error = (at(row, i) - rounded.Value(row, first + i, k)) / inverse.at(i, i);
        for (int64_t j = i + 1; j < count; ++j) at(row, j) -= error * inverse.at(i, j);
      }
      for (int64_t a = i + 1; a < count; ++a) {
        const double factor = inverse.at(a, i) / inverse.at(i, i);
        for (int64_t b = i + 1; b < count; ++b) inverse.at(a, b) -= factor * inverse.at(i, b);
      }
    }
  }
  return others;
}

// The squared error of the products x w^T.
double ProductError(const Rounded& rounded, const std::vector<float>& x,
                    const std::vector<float>& w, int64_t k) {
  const auto m = static_cast<int64_t>(x.size()) / k, n = static_cast<int64_t>(w.size()) / k;
  double total = 0;
  for (int64_t row = 0; row < n; ++row) {
    std::vector<double> wrong(static_cast<size_t>(k));
    for (int64_t c = 0; c < k; ++c) {
      wrong[static_cast<size_t>(c)] =
          rounded.Value(row, c, k) - w[static_cast<size_t>(row * k + c)];
    }
    for (int64_t i = 0; i < m; ++i) {
      double product = 0;
      for (int64_t c = 0; c < k; ++c) {
        product += wrong[static_cast<size_t>(c)] * x[static_cast<size_t>(i * k + c)];
      }
      total += product * product;
    }
  }
  return total;
}

Rounded RoundPlainlyToQ4(const std::vector<float>& w, int64_t k) {
  Rounded rounded{.codes = {}, .scales = {}, .group = kQ4Group};
  for (size_t first = 0; first < w.size(); first += kQ4Group) {
    Q4Values values;
    std::copy_n(w.begin() + static_cast<std::ptrdiff_t>(first), kQ4Group, values.begin());
    const auto group = QuantizeQ4(values);
    for (const uint8_t code : group.codes) rounded.codes.push_back(static_cast<int8_t>(code - 8));
    rounded.scales.push_back(group.scale);
  }
  EXPECT_EQ(k % kQ4Group, 0);
  return rounded;
}

TEST(ErrorFeedback, HasTheCodesOfAReferenceInDouble) {
  for (const int64_t k : {int64_t{40}, int64_t{300}}) {
    const auto x = CorrelatedInputs(200, k, 3);
    const auto w = NormalWeights(19, k);
    const std::vector<Square> inverses = InverseMomentsOfBlocks(x, k);
    const Rounded q4 = RoundFor(x, w, k, WeightFormat::kQ4);
    EXPECT_LE(CountOtherCodes(q4, inverses, w, k, -8, 7), 2) << k;
    const Rounded q6 = RoundFor(x, w, k, WeightFormat::kQ6);
    EXPECT_LE(CountOtherCodes(q6, inverses, w, k, -32, 31), 19 * k / 400) << k;
    const Rounded q8 = RoundFor(x, w, k, WeightFormat::kQ8);
    EXPECT_LE(CountOtherCodes(q8, inverses, w, k, -127, 127), 19 * k / 100)
        << k;  // finer, so more ties
  }
}

TEST(ErrorFeedback, LeavesLessThanHalfOfThePlainErrorOfProducts) {
  constexpr int64_t kK = 512;
  const auto x = CorrelatedInputs(1500, kK, 3);
  const auto others = CorrelatedInputs(500, kK, 4);  // of the same kind
  const auto w = NormalWeights(16, kK);
  const Rounded ours = RoundFor(x, w, kK, WeightFormat::kQ4);
  const Rounded plain = RoundPlainlyToQ4(w, kK);
  EXPECT_LT(ProductError(ours, x, w, kK), 0.5 * ProductError(plain, x, w, kK));
  EXPECT_LT(ProductError(ours, others, w, kK), 0.5 * ProductError(plain, others, w, kK));
}

TEST(ErrorFeedback, DependsNeitherOnThreadsNorOnOtherRows) {
  constexpr int64_t kK = 700;
  const auto x = CorrelatedInputs(333, kK, 5);
  const auto w = NormalWeights(21, kK);
  const Rounded expected = RoundFor(x, w, kK, WeightFormat::kQ4);
  for (const int threads : {2, 3, 8}) {
    EXPECT_EQ(RoundFor(x, w, kK, WeightFormat::kQ4, threads), expected) << threads;
  }
  const std::vector<float> row(w.end() - kK, w.end());
  const Rounded alone = RoundFor(x, row, kK, WeightFormat::kQ4);
  EXPECT_TRUE(std::equal(alone.codes.begin(), alone.codes.end(), expected.codes.end() - kK));
}

TEST(ErrorFeedback, TakesTheRowsThatAreListed) {
  constexpr int64_t kK = 64;
  const auto x = CorrelatedInputs(100, kK, 6);
  const auto w = NormalWeights(4, kK);
  const std::vector<int32_t> rows{3, 97, 41, 42, 0};
  std::vector<float> listed;
  for (const int32_t row : rows) {
    listed.insert(listed.end(), x.begin() + row * kK, x.begin() + (row + 1) * kK);
  }
  ThreadPool pool(2);
  const ErrorFeedback feedback({&SelectCpuKernels(), &pool},
                               {.x = x.data(), .ldx = kK, .rows = rows.data(), .m = 5}, kK);
  const Rounded expected = RoundFor(listed, w, kK, WeightFormat::kQ4);
  Rounded rounded = expected;
  std::ranges::fill(rounded.codes, int8_t{0});
  feedback.Round(WeightFormat::kQ4, w, rounded.codes.data(), rounded.scales.data());
  EXPECT_EQ(rounded, expected);
}

TEST(ErrorFeedback, IsPlainWhereInputsSayNothing) {
  constexpr int64_t kK = 288;
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const auto w = NormalWeights(3, kK);
  for (const float value : {0.0f, kNaN}) {
    const std::vector<float> x(static_cast<size_t>(50 * kK), value);
    const Rounded rounded = RoundFor(x, w, kK, WeightFormat::kQ8);
    for (int64_t row = 0; row < 3; ++row) {
      for (int64_t c = 0; c < kK; ++c) {
        const double step = rounded.Scale(row, c, (kK + rounded.group - 1) / rounded.group);
        ASSERT_NEAR(rounded.Value(row, c, kK), w[static_cast<size_t>(row * kK + c)], 0.54 * step);
      }
    }
  }
}

TEST(ErrorFeedback, KeepsWhatIsNotFiniteInItsBlock) {
  constexpr int64_t kK = 2 * kBlock;
  const auto x = CorrelatedInputs(300, kK, 8);
  auto w = NormalWeights(2, kK);
  const Rounded expected = RoundFor(x, w, kK, WeightFormat::kQ4);
  w[40] = std::numeric_limits<float>::infinity();
  const Rounded rounded = RoundFor(x, w, kK, WeightFormat::kQ4);
  const int64_t groups = kK / kQ4Group;
  EXPECT_TRUE(std::isnan(rounded.Scale(0, 40, groups)));
  for (int64_t c = kBlock; c < 2 * kK; ++c) {
    const int64_t row = c / kK, column = c % kK;
    ASSERT_EQ(rounded.Value(row, column, kK), expected.Value(row, column, kK)) << c;
  }
}

}  // namespace
}  // namespace mlc_native::kernels
