#include "sampling/row_ops.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "support/check.h"

namespace mlc_native {
namespace {

// Independent accumulators: enough to keep vector units busy, and a summation order that does not
// depend on the instruction set.
constexpr size_t kLanes = 16;
static_assert(kRowBlock % kLanes == 0);

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Cephes' expf: e^x = 2^n e^r with |r| <= ln(2) / 2, a polynomial for e^r. x <= 0.
inline float ExpPolynomial(float x) {
  constexpr float kLog2E = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float clamped = x < -87.0f ? -87.0f : x;
  const float shifted = clamped * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = clamped - n * kLn2High - n * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float e_r = p * r * r + r + 1.0f;
  // n is in the low bits of `shifted`; 2^n has the exponent field n + 127.
  const uint32_t exponent = (std::bit_cast<uint32_t>(shifted) + 127u) << 23;
  const float result = e_r * std::bit_cast<float>(exponent);
  return x < -87.0f ? 0.0f : result;
}

// The maximum of a block, and whether it holds a NaN (then the maximum means nothing).
inline float BlockMax(const float* x, size_t n, uint32_t* nan) {
  std::array<float, kLanes> max;
  std::array<uint32_t, kLanes> nans{};
  max.fill(kMinusInfinity);
  for (size_t i = 0; i + kLanes <= n; i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) {
      const float value = x[i + j];
      max[j] = value > max[j] ? value : max[j];
      nans[j] |= static_cast<uint32_t>(value != value);
    }
  }
  for (size_t i = n / kLanes * kLanes; i < n; ++i) {
    max[0] = x[i] > max[0] ? x[i] : max[0];
    nans[0] |= static_cast<uint32_t>(x[i] != x[i]);
  }
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t j = 0; j < width; ++j) {
      max[j] = max[j + width] > max[j] ? max[j + width] : max[j];
      nans[j] |= nans[j + width];
    }
  }
  *nan |= nans[0];
  return max[0];
}

inline double SumBlock(const float* x, size_t n) {
  std::array<float, kLanes> lanes{};
  for (size_t i = 0; i + kLanes <= n; i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) lanes[j] += x[i + j];
  }
  for (size_t i = n / kLanes * kLanes; i < n; ++i) lanes[0] += x[i];
  double sum = 0;
  for (float lane : lanes) sum += lane;
  return sum;
}

}  // namespace

void ScanRow(std::span<const float> logits, RowScan* scan) {
  const size_t num_blocks = NumRowBlocks(logits.size());
  scan->block_max.resize(num_blocks);
  uint32_t nan = 0;
  float max = kMinusInfinity;
  for (size_t b = 0; b < num_blocks; ++b) {
    const size_t begin = b * kRowBlock;
    const size_t n = std::min(kRowBlock, logits.size() - begin);
    const float block_max = n == kRowBlock ? BlockMax(logits.data() + begin, kRowBlock, &nan)
                                           : BlockMax(logits.data() + begin, n, &nan);
    scan->block_max[b] = block_max;
    max = block_max > max ? block_max : max;
  }
  scan->max = max;
  scan->has_nan = nan != 0;
}

int32_t FindArgmax(std::span<const float> logits, const RowScan& scan) {
  const auto block = std::find(scan.block_max.begin(), scan.block_max.end(), scan.max);
  MLC_CHECK(block != scan.block_max.end());
  const auto begin = logits.begin() + (block - scan.block_max.begin()) * kRowBlock;
  return static_cast<int32_t>(std::find(begin, logits.end(), scan.max) - logits.begin());
}

float ExpNonPositive(float x) { return ExpPolynomial(x); }

double SumExp(std::span<const float> logits, float max) {
  double sum = 0;
  std::array<float, kRowBlock> weights;
  for (size_t begin = 0; begin < logits.size(); begin += kRowBlock) {
    const size_t n = std::min(kRowBlock, logits.size() - begin);
    const float* x = logits.data() + begin;
    for (size_t i = 0; i < n; ++i) weights[i] = ExpPolynomial(x[i] - max);
    sum += SumBlock(weights.data(), n);
  }
  return sum;
}

void ExpRow(std::span<const float> logits, const RowScan& scan, float inverse_temperature,
            RowWeights* weights) {
  const size_t num_blocks = NumRowBlocks(logits.size());
  weights->weights.resize(logits.size());
  weights->block_sums.resize(num_blocks);
  weights->block_upper.resize(num_blocks);
  weights->sum = 0;
  const float max = scan.max;
  for (size_t b = 0; b < num_blocks; ++b) {
    const size_t begin = b * kRowBlock;
    const size_t n = std::min(kRowBlock, logits.size() - begin);
    const float* x = logits.data() + begin;
    float* w = weights->weights.data() + begin;
    for (size_t i = 0; i < n; ++i) w[i] = ExpPolynomial((x[i] - max) * inverse_temperature);
    weights->block_sums[b] = SumBlock(w, n);
    weights->sum += weights->block_sums[b];
    // The polynomial is monotone only up to rounding.
    weights->block_upper[b] =
        1.00001f * ExpPolynomial((scan.block_max[b] - max) * inverse_temperature);
  }
}

int32_t DrawFromRow(const RowWeights& weights, double u) {
  const double target = u * weights.sum;
  double sum = 0;
  size_t block = 0;  // the last block with weight whose predecessors' sum is not above the target
  double before = 0;
  for (size_t b = 0; b < weights.block_sums.size() && sum <= target; ++b) {
    if (weights.block_sums[b] <= 0) continue;
    block = b;
    before = sum;
    sum += weights.block_sums[b];
  }
  const size_t end = std::min(weights.weights.size(), (block + 1) * kRowBlock);
  size_t token = end;
  for (size_t i = block * kRowBlock; i < end && before <= target; ++i) {
    if (weights.weights[i] <= 0) continue;
    before += weights.weights[i];
    token = i;
  }
  MLC_CHECK(token < end) << "no token has a weight";
  return static_cast<int32_t>(token);
}

}  // namespace mlc_native
