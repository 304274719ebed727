// FP8 of the kind E4M3: a sign, 4 bits of exponent, 3 of mantissa; no infinities, and NaN where all
// bits of exponent and mantissa are set. Pure; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "mlc_native/detail/basic_types.h"

namespace mlc_native {

inline constexpr uint8_t kNaNFloat8 = 0x7f;  // without its sign

namespace float8 {

constexpr float ToFloat(unsigned bits) {
  const unsigned exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return sign * static_cast<float>(mantissa) * 0x1p-9f;
  const float power = std::bit_cast<float>((exponent + 120) << 23);
  return sign * (1.0f + static_cast<float>(mantissa) / 8.0f) * power;
}

constexpr std::array<float, 256> MakeTable() {
  std::array<float, 256> table{};
  for (unsigned i = 0; i < table.size(); ++i) table[i] = ToFloat(i);
  return table;
}
inline constexpr std::array<float, 256> kTable = MakeTable();

}  // namespace float8

inline float Float8ToFloat(uint8_t bits) { return float8::kTable[bits]; }

// Rounds to nearest even; magnitudes above the largest become it.
inline uint8_t FloatToFloat8(float x) {
  constexpr int kLeastExponent = -6, kMantissaBits = 3;
  const unsigned sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return static_cast<uint8_t>(sign | kNaNFloat8);
  const float magnitude = std::min(std::fabs(x), kMaxFloat8);
  if (magnitude == 0) return static_cast<uint8_t>(sign);
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  exponent = std::max(exponent - 1, kLeastExponent);
  // 8 to 16 steps of a normal number, fewer of one below.
  const float steps = std::nearbyint(std::ldexp(magnitude, kMantissaBits - exponent));
  const auto code =
      static_cast<unsigned>((exponent - kLeastExponent) * 8 + static_cast<int>(steps));
  return static_cast<uint8_t>(sign | code);
}

}  // namespace mlc_native
