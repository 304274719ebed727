#include "kernels/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <span>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "support/half.h"

namespace mlc_native::kernels {
namespace {

template <size_t kSize>
using Group = std::array<float, kSize>;

// Four floats in the vectors of the base ISA. Sums and maxima run in lanes that are joined at the
// end.
using Lanes = float __attribute__((vector_size(16)));
constexpr size_t kLanes = 4;

Lanes All(float x) { return Lanes{x, x, x, x}; }
#if defined(__SSE2__)  // one instruction that the compiler does not find by itself
Lanes Min(Lanes a, Lanes b) { return _mm_min_ps(a, b); }
Lanes Max(Lanes a, Lanes b) { return _mm_max_ps(a, b); }
#else
Lanes Min(Lanes a, Lanes b) { return a < b ? a : b; }
Lanes Max(Lanes a, Lanes b) { return a > b ? a : b; }
#endif
float Sum(Lanes x) { return (x[0] + x[2]) + (x[1] + x[3]); }
float LargestLane(Lanes x) { return std::fmax(std::fmax(x[0], x[2]), std::fmax(x[1], x[3])); }

// Rounds to nearest even, for |x| < 2^22. Adding kShift leaves x as an integer in the lowest bits
// of the sum.
constexpr float kShift = 12582912.0f;
Lanes RoundToInteger(Lanes x) { return (x + kShift) - kShift; }

template <size_t kSize>
struct Vectors {
  Lanes v[kSize / kLanes];

  explicit Vectors(const Group<kSize>& x) { std::memcpy(v, x.data(), sizeof(v)); }

  bool AllFinite() const {
    Lanes sum = {};
    for (Lanes x : v) sum += x * 0.0f;
    return Sum(sum) == 0.0f;
  }
  float Highest() const {  // or 0
    Lanes best = {};
    for (Lanes x : v) best = Max(best, x);
    return LargestLane(best);
  }
  float Lowest() const {  // or 0
    Lanes best = {};
    for (Lanes x : v) best = Max(best, -x);
    return -LargestLane(best);
  }
};

constexpr uint16_t kNaN = 0x7e00;

// The smallest float16 >= x >= 0.
uint16_t Float16NotBelow(float x) {
  const uint16_t nearest = FloatToFloat16(x);
  return static_cast<uint16_t>(nearest + (Float16ToFloat(nearest) < x ? 1 : 0));
}

template <int kOffset, size_t kSize>
QuantizedGroup<kSize> WithScale(const Vectors<kSize>& x, uint16_t scale) {
  QuantizedGroup<kSize> group{.scale = scale, .codes = {}};
  const float value = Float16ToFloat(scale);
  const float inverse = value != 0 ? 1 / value : 0;
  Lanes shifted[kSize / kLanes];
  for (size_t i = 0; i < kSize / kLanes; ++i) {
    shifted[i] = Min(Max(x.v[i] * inverse, All(-kOffset)), All(kOffset - 1)) + kShift;
  }
  uint32_t bits[kSize];
  std::memcpy(bits, shifted, sizeof(bits));
  for (size_t i = 0; i < kSize; ++i) group.codes[i] = static_cast<uint8_t>(bits[i] + kOffset);
  return group;
}

// ---- The scales of q4 and q6, for kLanes groups at a time ----

// Codes are in [-kOffset, kOffset - 1].
template <int64_t kGroupSize>
struct Q4Codes {
  static constexpr int64_t kGroup = kGroupSize;
  static constexpr int kOffset = 8;
  // The extreme value over the scales that are tried.
  static constexpr float kSteps[] = {-9.5f, -9.0f, -8.5f, -8.0f, -7.5f, -7.0f,
                                     6.5f,  7.0f,  7.5f,  8.0f,  8.5f};
};
template <int64_t kGroupSize>
struct Q6Codes {
  static constexpr int64_t kGroup = kGroupSize;
  static constexpr int kOffset = 32;
  static constexpr float kSteps[] = {-34.0f, -33.0f, -32.0f, -31.0f, -30.0f, 31.0f, 32.0f};
};

template <typename Codes>
struct Groups {
  Lanes x[Codes::kGroup];  // one lane per group
};

// How well the integers q nearest to x * inverse fit x: the best scale for them is <x, q> / <q, q>,
// and it explains <x, q>^2 / <q, q> of <x, x>.
struct Fit {
  Lanes scale;
  Lanes explained;
};

template <typename Codes>
void FitCodes(const Groups<Codes>& groups, const Lanes& inverse, Fit* fit) {
  Lanes xq = {}, qq = {};
  for (const Lanes& x : groups.x) {
    const Lanes q =
        RoundToInteger(Min(Max(x * inverse, All(-Codes::kOffset)), All(Codes::kOffset - 1)));
    xq += x * q;
    qq += q * q;
  }
  const Lanes norm = Max(qq, All(1));  // if q is 0, then <x, q> is 0 too
  fit->scale = xq / norm;
  fit->explained = xq * xq / norm;
}

// The side with the larger magnitude gets the lowest code, through a negative scale if that is the
// positive side. A scale that clips it, or that leaves room, can fit the other values better.
template <typename Codes>
Lanes BestScales(const Groups<Codes>& groups) {
  Lanes low = {}, high = {};
  for (const Lanes& x : groups.x) {
    low = Min(low, x);
    high = Max(high, x);
  }
  const Lanes extreme = -low > high ? low : high;
  Fit best = {};
  for (const float steps : Codes::kSteps) {
    Fit fit;
    FitCodes(groups, extreme != 0 ? steps / extreme : extreme, &fit);
    const auto better = fit.explained > best.explained;
    best.scale = better ? fit.scale : best.scale;
    best.explained = better ? fit.explained : best.explained;
  }
  return best.scale;
}

template <typename Codes>
void Quantize(std::span<const Group<Codes::kGroup>> groups, QuantizedGroup<Codes::kGroup>* out) {
  for (size_t first = 0; first < groups.size(); first += kLanes) {
    const size_t count = std::min(kLanes, groups.size() - first);
    Groups<Codes> side_by_side = {};
    for (size_t g = 0; g < count; ++g) {
      for (size_t i = 0; i < Codes::kGroup; ++i) side_by_side.x[i][g] = groups[first + g][i];
    }
    const Lanes scales = BestScales(side_by_side);
    for (size_t g = 0; g < count; ++g) {
      const Vectors<Codes::kGroup> x(groups[first + g]);
      const bool finite = x.AllFinite();
      out[first + g] = finite ? WithScale<Codes::kOffset>(x, FloatToFloat16(scales[g]))
                              : QuantizedGroup<Codes::kGroup>{.scale = kNaN, .codes = {}};
    }
  }
}

template <int64_t kGroup>
QuantizedGroup<kGroup> QuantizeTo8Bits(const Group<kGroup>& values) {
  const Vectors<kGroup> x(values);
  if (!x.AllFinite()) return {.scale = kNaN, .codes = {}};
  return WithScale<128>(x, Float16NotBelow(std::fmax(x.Highest(), -x.Lowest()) / 127));
}

}  // namespace

QuantizedGroup<kQ8Group> QuantizeQ8(const Group<kQ8Group>& values) {
  return QuantizeTo8Bits<kQ8Group>(values);
}
QuantizedGroup<kShortQ8Group> QuantizeQ8(const Group<kShortQ8Group>& values) {
  return QuantizeTo8Bits<kShortQ8Group>(values);
}

void QuantizeQ4(std::span<const Q4Values> groups, QuantizedGroup<kQ4Group>* out) {
  Quantize<Q4Codes<kQ4Group>>(groups, out);
}
void QuantizeQ4(std::span<const ShortQ4Values> groups, QuantizedGroup<kShortQ4Group>* out) {
  Quantize<Q4Codes<kShortQ4Group>>(groups, out);
}
void QuantizeQ6(std::span<const Q6Values> groups, QuantizedGroup<kQ6Group>* out) {
  Quantize<Q6Codes<kQ6Group>>(groups, out);
}
void QuantizeQ6(std::span<const ShortQ6Values> groups, QuantizedGroup<kShortQ6Group>* out) {
  Quantize<Q6Codes<kShortQ6Group>>(groups, out);
}

template <int64_t kGroup>
AffineQuantizedGroup<kGroup> QuantizeAffine(const std::array<float, kGroup>& values,
                                            int num_codes) {
  AffineQuantizedGroup<kGroup> group{};
  group.scale = kNaN;
  const Vectors<kGroup> x(values);
  if (!x.AllFinite()) return group;
  const auto last = static_cast<float>(num_codes - 1);
  const int half = num_codes / 2;
  const auto middle = static_cast<float>(half);
  const float lowest = x.Lowest();
  group.scale = Float16NotBelow((x.Highest() - lowest) / last);
  const float scale = Float16ToFloat(group.scale);
  if (scale == 0) return group;
  group.shift = FloatToFloat16(lowest / scale + middle);
  for (size_t i = 0; i < values.size(); ++i) {
    const float code = std::round(values[i] / scale + middle - Float16ToFloat(group.shift));
    group.codes[i] = static_cast<uint8_t>(std::clamp(code, 0.0f, last));
  }
  return group;
}
template AffineQuantizedGroup<kQ4Group> QuantizeAffine<kQ4Group>(const Group<kQ4Group>&, int);
template AffineQuantizedGroup<kShortQ6Group> QuantizeAffine<kShortQ6Group>(
    const Group<kShortQ6Group>&, int);

template <int64_t kGroup>
QuantizedGroup<kGroup> QuantizeToTable(const std::array<float, kGroup>& values,
                                       const int8_t* values_of_codes) {
  const std::span<const int8_t, 16> table(values_of_codes, 16);
  const Vectors<kGroup> x(values);
  if (!x.AllFinite()) return {.scale = kNaN, .codes = {}};
  const int8_t largest = *std::ranges::max_element(table, {}, [](int8_t v) { return std::abs(v); });
  const float highest = x.Highest(), lowest = x.Lowest();
  const float extreme = -lowest > highest ? lowest : highest;
  QuantizedGroup<kGroup> group{};
  group.scale = FloatToFloat16(extreme / static_cast<float>(largest));
  const float scale = Float16ToFloat(group.scale);
  for (size_t i = 0; i < values.size() && scale != 0; ++i) {
    const float value = values[i] / scale;
    const auto nearest = std::ranges::min_element(
        table, {}, [&](int8_t v) { return std::fabs(static_cast<float>(v) - value); });
    group.codes[i] = static_cast<uint8_t>(nearest - table.begin());
  }
  return group;
}
template QuantizedGroup<kQ4Group> QuantizeToTable<kQ4Group>(const Group<kQ4Group>&, const int8_t*);
template QuantizedGroup<kShortQ4Group> QuantizeToTable<kShortQ4Group>(const Group<kShortQ4Group>&,
                                                                      const int8_t*);

QuantizedGroup<kQ2Group> QuantizeTernary(const Group<kQ2Group>& values) {
  const Vectors<kQ2Group> x(values);
  if (!x.AllFinite()) return {.scale = kNaN, .codes = {}};
  QuantizedGroup<kQ2Group> group{};
  const float largest = std::fmax(x.Highest(), -x.Lowest());
  group.scale = FloatToFloat16(largest);
  for (size_t i = 0; i < values.size(); ++i) {
    const int sign = 2 * std::fabs(values[i]) <= largest ? 0 : std::signbit(values[i]) ? -1 : 1;
    group.codes[i] = static_cast<uint8_t>(2 + sign);
  }
  return group;
}

QuantizedGroup<kMxfp4Group> QuantizeMxfp4(const Mxfp4Values& values) {
  constexpr uint16_t kBFloat16NaN = 0x7fc0;
  const Vectors<kMxfp4Group> x(values);
  if (!x.AllFinite()) return {.scale = kBFloat16NaN, .codes = {}};
  QuantizedGroup<kMxfp4Group> group{};
  const float largest = std::fmax(x.Highest(), -x.Lowest());
  if (largest == 0) return group;
  constexpr int kLargestExponent = 2;  // of 4 bits
  constexpr int kLeastScale = -127;
  const int exponent = std::max(std::ilogb(largest) - kLargestExponent, kLeastScale);
  group.scale = FloatToBFloat16(std::ldexp(1.0f, exponent - 1));
  for (size_t i = 0; i < values.size(); ++i) {
    const float magnitude = std::fabs(std::ldexp(values[i], 1 - exponent));  // in halves
    // Between two codes, the even one.
    constexpr float kMidpoints[] = {0.5f, 1.5f, 2.5f, 3.5f, 5.0f, 7.0f, 10.0f};
    uint8_t code = 0;
    for (const float midpoint : kMidpoints) {
      const bool is_above = code % 2 == 0 ? magnitude > midpoint : magnitude >= midpoint;
      code = static_cast<uint8_t>(code + (is_above ? 1 : 0));
      if (!is_above) break;
    }
    group.codes[i] = static_cast<uint8_t>(code | (std::signbit(values[i]) ? 8 : 0));
  }
  return group;
}

QuantizedGroup<kQ4Group> QuantizeQ4(const Q4Values& values) {
  QuantizedGroup<kQ4Group> group;
  QuantizeQ4({&values, 1}, &group);
  return group;
}
QuantizedGroup<kQ6Group> QuantizeQ6(const Q6Values& values) {
  QuantizedGroup<kQ6Group> group;
  QuantizeQ6({&values, 1}, &group);
  return group;
}

}  // namespace mlc_native::kernels
