#include "kernels/quantize.h"

#include <cmath>
#include <cstring>

#include "support/half.h"

namespace mlc_native::kernels {
namespace {

template <size_t kSize>
using Group = std::array<float, kSize>;

// Four floats, in whatever vectors the base ISA has. Sums and maxima run in lanes that are joined
// at the end.
using Lanes = float __attribute__((vector_size(16)));
constexpr size_t kLanes = 4;

Lanes All(float x) { return Lanes{x, x, x, x}; }
Lanes Min(Lanes a, Lanes b) { return a < b ? a : b; }
Lanes Max(Lanes a, Lanes b) { return a > b ? a : b; }
float Sum(Lanes x) { return (x[0] + x[2]) + (x[1] + x[3]); }
float LargestLane(Lanes x) { return std::fmax(std::fmax(x[0], x[2]), std::fmax(x[1], x[3])); }

// To nearest even, for |x| < 2^22.
Lanes RoundToInteger(Lanes x) { return (x + 12582912.0f) - 12582912.0f; }

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
  for (size_t i = 0; i < kSize; i += kLanes) {
    const Lanes scaled = x.v[i / kLanes] * inverse;
    const Lanes clamped = Min(Max(scaled, All(-kOffset)), All(kOffset - 1));
    const Lanes code = RoundToInteger(clamped) + static_cast<float>(kOffset);
    for (size_t j = 0; j < kLanes; ++j) group.codes[i + j] = static_cast<uint8_t>(code[j]);
  }
  return group;
}

// How well the integers nearest to x * inverse fit x: with q those, the best scale for them is
// <x, q> / <q, q>, and <x, q>^2 / <q, q> of <x, x> is then explained.
struct Fit {
  float scale = 0;
  float explained = 0;
};

Fit FitQ4(const Vectors<kQ4Group>& x, float inverse) {
  Lanes xq = {}, qq = {};
  for (Lanes v : x.v) {
    const Lanes q = RoundToInteger(Min(Max(v * inverse, All(-8)), All(7)));
    xq += v * q;
    qq += q * q;
  }
  const float dot = Sum(xq), norm = Sum(qq);
  if (!(norm > 0)) return {};
  return {.scale = dot / norm, .explained = dot * dot / norm};
}

}  // namespace

QuantizedGroup<kQ8Group> QuantizeQ8(const Group<kQ8Group>& values) {
  const Vectors<kQ8Group> x(values);
  if (!x.AllFinite()) return {.scale = kNaN, .codes = {}};
  return WithScale<128>(x, Float16NotBelow(std::fmax(x.Highest(), -x.Lowest()) / 127));
}

// The codes reach from -8 to 7: the side with the larger magnitude gets the -8, by a negative scale
// where it is the positive one. Scales that clip it, or that leave room, can be better for the
// rest.
QuantizedGroup<kQ4Group> QuantizeQ4(const Group<kQ4Group>& values) {
  const Vectors<kQ4Group> x(values);
  if (!x.AllFinite()) return {.scale = kNaN, .codes = {}};
  const float extreme = -x.Lowest() > x.Highest() ? x.Lowest() : x.Highest();
  if (extreme == 0) return WithScale<8>(x, 0);
  Fit best;
  for (float steps : {-9.5f, -9.0f, -8.5f, -8.0f, -7.5f, -7.0f, 6.5f, 7.0f, 7.5f, 8.0f, 8.5f}) {
    const Fit fit = FitQ4(x, steps / extreme);
    if (fit.explained > best.explained) best = fit;
  }
  return WithScale<8>(x, FloatToFloat16(best.scale));
}

}  // namespace mlc_native::kernels
