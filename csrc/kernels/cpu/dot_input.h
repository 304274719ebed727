// The inputs of quantized weights in the form that every ISA uses. Included by the dot_*.h only.
#pragma once

#include <cstdint>

#include "kernels/packed_format.h"

namespace mlc_native::kernels {
namespace {

// The values of codes of 4 bits, also as unsigned bytes, which are `offset` too large.
struct ByteTable {
  int8_t values[16] = {};
  uint8_t bytes[16] = {};
  int offset = 0;

  constexpr explicit ByteTable(const int8_t* from) {
    for (int i = 0; i < 16; ++i) offset = from[i] < -offset ? -from[i] : offset;
    for (int i = 0; i < 16; ++i) {
      values[i] = from[i];
      bytes[i] = static_cast<uint8_t>(from[i] + offset);
    }
  }
  // Whether two products of a byte and an input, which is at most 127, fit into 16 bits.
  constexpr bool PairsFit() const {
    for (const uint8_t byte : bytes) {
      if (2 * 127 * byte > 32767) return false;
    }
    return true;
  }
};
template <WeightFormat kFormat>
constexpr ByteTable kTableOf(TableOf(kFormat));

// The chunks of 4 codes of 6 bits (packed_format.h) that Q6Codes::Load reads, and the bytes from
// one to the next for vectors of kLanes columns.
constexpr int kQ6Chunks = 3;
template <int kLanes>
constexpr int kNextChunk = 2 * 4 * kLanes;

// A group of inputs of one row, quantized to 8 bits.
template <int kGroup>
struct QuantInput {
  float factor;   // factor of its Scale
  int32_t start;  // initial value of the integer sums: Start of its Scale - offset of the weights'
                  // codes * sum of these codes
  int8_t codes[kGroup];
};

// The same for weights with shifts.
template <int kGroup>
struct AffineInput : QuantInput<kGroup> {
  float sum;  // of the values that the codes mean
};

// A Scale follows from the largest magnitude of a group: values are codes * scale, and codes are
// values * inverse. A group of only zeros and negligible values becomes zeros. If a value is not
// finite, the factor is NaN, and so is every output of the row.

// The most accurate scale. It costs a conversion and a multiplication of the sums.
struct InputScale {
  static constexpr bool kInExponent = false;
  float scale;
  float inverse;

  explicit InputScale(float largest) : scale(0), inverse(0) {
    if (largest <= 1e-30f) return;
    const bool finite = largest < __builtin_inff();
    scale = finite ? largest / 127.0f : __builtin_nanf("");
    inverse = finite ? 127.0f / largest : 0;
  }
  float Factor() const { return scale; }
  int32_t Start() const { return 0; }
  // What a code is multiplied with.
  static float OfCodes(float factor) { return factor; }
};

// The next power of two, 2^e. The rounding error of the inputs is about 1.4 times as large, which
// is small compared with that of 4-bit weights. The sums start at the bits of the float base = 1.5
// * 2^(23 + e), so that they end as the bits of base + sum * 2^e (|sum| < 2^22). Subtracting base,
// which is exact, turns them into floats that include the scale.
struct ExponentScale {
  static constexpr bool kInExponent = true;
  float base;
  float inverse;

  explicit ExponentScale(float largest) : base(1.5f * 0x1p23f), inverse(0) {
    if (largest <= 0x1p-100f) return;
    if (!(largest < 0x1p110f)) {  // base would be infinite
      base = __builtin_nanf("");
      return;
    }
    const float bound = largest * (128.0f / 127.0f);  // in [2^(e + 6), 2^(e + 7))
    const uint32_t exponent = __builtin_bit_cast(uint32_t, bound) >> 23;  // of 2^(e + 6), biased
    base = __builtin_bit_cast(float, (exponent + 17) << 23 | 0x400000u);
    inverse = __builtin_bit_cast(float, (2 * 127 + 6 - exponent) << 23);
  }
  float Factor() const { return base; }
  int32_t Start() const { return __builtin_bit_cast(int32_t, base); }
  static float OfCodes(float factor) { return factor / 0x1.8p23f; }
};

}  // namespace
}  // namespace mlc_native::kernels
