// Scalar conversion between float32 and the 16-bit formats (bfloat16, IEEE binary16) as raw bits:
// round to nearest even, NaN stays NaN, overflow becomes infinity, subnormals are exact. Portable
// and constexpr; vector code has its own.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "mlc_native/detail/dtype.h"

namespace mlc_native {

constexpr float BFloat16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

constexpr uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float Float16ToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

constexpr uint16_t FloatToFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN, made quiet
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to 2^16 or more
  if (magnitude < 0x38800000u) {                        // below 2^-14: subnormal or zero
    // Adding 0.5 puts the value's multiple of 2^-24 into the low mantissa bits, rounded by the FPU.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

// Element `index` of an array of `dtype`.
inline float LoadElement(DType dtype, const void* data, int64_t index) {
  if (dtype == DType::kFloat32) {
    float value;
    std::memcpy(&value, static_cast<const char*>(data) + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, static_cast<const char*>(data) + index * 2, 2);
  return dtype == DType::kBFloat16 ? BFloat16ToFloat(bits) : Float16ToFloat(bits);
}

inline void StoreElement(DType dtype, void* data, int64_t index, float value) {
  if (dtype == DType::kFloat32) {
    std::memcpy(static_cast<char*>(data) + index * 4, &value, 4);
    return;
  }
  const uint16_t bits = dtype == DType::kBFloat16 ? FloatToBFloat16(value) : FloatToFloat16(value);
  std::memcpy(static_cast<char*>(data) + index * 2, &bits, 2);
}

}  // namespace mlc_native
