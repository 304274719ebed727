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
[[gnu::always_inline]] inline float ExpPolynomial(float x) {
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

// Four floats in a register (GCC and Clang vector extension), without alignment in memory.
using Float4 = float __attribute__((vector_size(16), aligned(4), may_alias));
using Int4 = int32_t __attribute__((vector_size(16)));

// Returns the maximum of a whole block. If the block has a NaN, sets a bit of *nan, and the maximum
// is unspecified. Written with vectors because compilers keep arrays of running maxima in memory.
inline float BlockMax(const float* x, Int4* nan) {
  constexpr size_t kAccumulators = 4;
  Float4 max[kAccumulators];
  Int4 nans[kAccumulators];
  for (size_t j = 0; j < kAccumulators; ++j) {
    max[j] = Float4{kMinusInfinity, kMinusInfinity, kMinusInfinity, kMinusInfinity};
    nans[j] = Int4{};
  }
  for (size_t i = 0; i < kRowBlock; i += 4 * kAccumulators) {
    for (size_t j = 0; j < kAccumulators; ++j) {
      const Float4 value = *reinterpret_cast<const Float4*>(x + i + 4 * j);
      max[j] = value > max[j] ? value : max[j];
      nans[j] |= value != value;
    }
  }
  *nan |= (nans[0] | nans[1]) | (nans[2] | nans[3]);
  const Float4 max01 = max[0] > max[1] ? max[0] : max[1];
  const Float4 max23 = max[2] > max[3] ? max[2] : max[3];
  const Float4 max4 = max01 > max23 ? max01 : max23;
  return std::max(std::max(max4[0], max4[1]), std::max(max4[2], max4[3]));
}

[[gnu::always_inline]] inline double SumBlock(const float* x, size_t n) {
  std::array<float, kLanes> lanes{};
  for (size_t i = 0; i + kLanes <= n; i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) lanes[j] += x[i + j];
  }
  for (size_t i = n / kLanes * kLanes; i < n; ++i) lanes[0] += x[i];
  double sum = 0;
  for (float lane : lanes) sum += lane;
  return sum;
}

// Computes w = e^((x - max) * inverse_temperature) for at most kRowBlock elements; returns their
// sum.
struct ExpArgs {
  float max;
  float inverse_temperature;
};
[[gnu::always_inline]] inline double ExpBlock(const float* x, size_t n, const ExpArgs& args,
                                              float* __restrict w) {
  const float max = args.max;
  const float inverse_temperature = args.inverse_temperature;
  for (size_t i = 0; i < n; ++i) w[i] = ExpPolynomial((x[i] - max) * inverse_temperature);
  return SumBlock(w, n);
}

double ExpBlockBaseline(const float* x, size_t n, const ExpArgs& args, float* w) {
  return ExpBlock(x, n, args, w);
}

#if defined(__x86_64__)
// The same operations in the same order on eight or sixteen elements at a time: the results have
// the same bits.
[[gnu::target("avx2")]] double ExpBlockAvx2(const float* x, size_t n, const ExpArgs& args,
                                            float* w) {
  return ExpBlock(x, n, args, w);
}
[[gnu::target("avx512f,prefer-vector-width=512")]] double ExpBlockAvx512(const float* x, size_t n,
                                                                         const ExpArgs& args,
                                                                         float* w) {
  return ExpBlock(x, n, args, w);
}
auto* SelectExpBlock() {
  if (__builtin_cpu_supports("avx512f")) return ExpBlockAvx512;
  return __builtin_cpu_supports("avx2") ? ExpBlockAvx2 : ExpBlockBaseline;
}
#else
auto* SelectExpBlock() { return ExpBlockBaseline; }
#endif

}  // namespace

void ScanRow(std::span<const float> logits, RowScan* scan) {
  scan->block_max.resize(NumRowBlocks(logits.size()));
  Int4 nan{};
  float max = kMinusInfinity;
  for (size_t b = 0; b < scan->block_max.size(); ++b) {
    const auto block = logits.subspan(b * kRowBlock);
    float block_max;
    if (block.size() >= kRowBlock) {
      block_max = BlockMax(block.data(), &nan);
    } else {
      std::array<float, kRowBlock> padded;
      std::fill(std::copy(block.begin(), block.end(), padded.begin()), padded.end(),
                kMinusInfinity);
      block_max = BlockMax(padded.data(), &nan);
    }
    scan->block_max[b] = block_max;
    max = std::max(max, block_max);
  }
  scan->max = max;
  scan->has_nan = (nan[0] | nan[1] | nan[2] | nan[3]) != 0;
}

int32_t FindArgmax(std::span<const float> logits, const RowScan& scan) {
  const auto block = std::find(scan.block_max.begin(), scan.block_max.end(), scan.max);
  MLC_CHECK(block != scan.block_max.end());
  const auto begin = logits.begin() + (block - scan.block_max.begin()) * kRowBlock;
  return static_cast<int32_t>(std::find(begin, logits.end(), scan.max) - logits.begin());
}

float ExpNonPositive(float x) { return ExpPolynomial(x); }

double SumExp(std::span<const float> logits, float max) {
  const auto exp_block = SelectExpBlock();
  double sum = 0;
  std::array<float, kRowBlock> weights;
  for (size_t begin = 0; begin < logits.size(); begin += kRowBlock) {
    const size_t n = std::min(kRowBlock, logits.size() - begin);
    sum += exp_block(logits.data() + begin, n, {max, 1.0f}, weights.data());
  }
  return sum;
}

void ForbidTokens(std::span<float> logits, std::span<const int32_t> allowed) {
  constexpr size_t kBits = 32;
  MLC_CHECK(allowed.size() * kBits >= logits.size()) << allowed.size() << " words of mask";
  for (size_t begin = 0; begin < logits.size(); begin += kBits) {
    const auto word = static_cast<uint32_t>(allowed[begin / kBits]);
    if (word == ~uint32_t{0}) continue;
    const auto block = logits.subspan(begin, std::min(kBits, logits.size() - begin));
    for (size_t i = 0; i < block.size(); ++i) {
      block[i] = (word >> i & 1) != 0 ? block[i] : kMinusInfinity;
    }
  }
}

void ExpRow(std::span<const float> logits, const RowScan& scan, float inverse_temperature,
            RowWeights* row) {
  const auto exp_block = SelectExpBlock();
  const ExpArgs args{scan.max, inverse_temperature};
  const size_t num_blocks = NumRowBlocks(logits.size());
  row->weights.resize(logits.size());
  row->block_sums.resize(num_blocks);
  row->block_upper.resize(num_blocks);
  row->sum = 0;
  for (size_t b = 0; b < num_blocks; ++b) {
    const size_t begin = b * kRowBlock;
    const size_t n = std::min(kRowBlock, logits.size() - begin);
    row->block_sums[b] = exp_block(logits.data() + begin, n, args, row->weights.data() + begin);
    row->sum += row->block_sums[b];
    // The polynomial is monotone only up to rounding.
    row->block_upper[b] =
        1.00001f * ExpPolynomial((scan.block_max[b] - args.max) * inverse_temperature);
  }
}

void KeepAbove(const RowThreshold& threshold, RowWeights* row) {
  const float value = threshold.value;
  for (float& weight : row->weights) weight = weight < value ? 0.0f : weight;
  const auto end = row->weights.end();
  auto tie = row->weights.begin();
  for (size_t i = 0; i < threshold.num_ties && tie != end; ++i) {
    tie = std::find(tie, end, value);
    if (tie != end) ++tie;
  }
  std::replace(tie, end, value, 0.0f);
  row->sum = 0;
  for (size_t b = 0; b < row->block_sums.size(); ++b) {
    const auto block = std::span<const float>(row->weights).subspan(b * kRowBlock);
    row->block_sums[b] = SumBlock(block.data(), std::min(kRowBlock, block.size()));
    row->sum += row->block_sums[b];
  }
}

int32_t DrawFromRow(const RowWeights& row, double u) {
  const double target = u * row.sum;
  double sum = 0;
  size_t block = 0;  // the last block with weight such that the sum before it is at most the target
  double before = 0;
  for (size_t b = 0; b < row.block_sums.size() && sum <= target; ++b) {
    if (row.block_sums[b] <= 0) continue;
    block = b;
    before = sum;
    sum += row.block_sums[b];
  }
  const size_t end = std::min(row.weights.size(), (block + 1) * kRowBlock);
  size_t token = end;
  for (size_t i = block * kRowBlock; i < end && before <= target; ++i) {
    if (row.weights[i] <= 0) continue;
    before += row.weights[i];
    token = i;
  }
  MLC_CHECK(token < end) << "no token has a weight";
  return static_cast<int32_t>(token);
}

}  // namespace mlc_native
