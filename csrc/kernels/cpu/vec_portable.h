// Vec in plain C++: 8 floats that the compiler maps to whatever the target's base level has.
// Included by the translation units of "portable" only.
#pragma once

#include <cmath>
#include <cstdint>

#include "support/float8.h"
#include "support/half.h"

namespace mlc_native::kernels {
namespace {

constexpr int kTileRows = 2;  // SSE2 has 16 registers of 4 floats

struct Vec {
  static constexpr int kLanes = 8;
  float v[kLanes];

  static Vec Zero() { return Set(0.0f); }
  static Vec Set(float x) {
    Vec r;
    for (float& lane : r.v) lane = x;
    return r;
  }
  static Vec Load(const float* p) {
    Vec r;
    for (int i = 0; i < kLanes; ++i) r.v[i] = p[i];
    return r;
  }
  void Store(float* p) const {
    for (int i = 0; i < kLanes; ++i) p[i] = v[i];
  }
};

template <typename F>
inline Vec Lanewise(F f) {
  Vec r;
  for (int i = 0; i < Vec::kLanes; ++i) r.v[i] = f(i);
  return r;
}

// A multiplication and an addition if the target has no fused instruction (a library call per lane
// would be 20 times slower).
inline float MultiplyAdd(float a, float b, float c) {
#ifdef __FP_FAST_FMAF
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

inline Vec operator+(Vec a, Vec b) {
  return Lanewise([&](int i) { return a.v[i] + b.v[i]; });
}
inline Vec operator-(Vec a, Vec b) {
  return Lanewise([&](int i) { return a.v[i] - b.v[i]; });
}
inline Vec operator*(Vec a, Vec b) {
  return Lanewise([&](int i) { return a.v[i] * b.v[i]; });
}
inline Vec operator/(Vec a, Vec b) {
  return Lanewise([&](int i) { return a.v[i] / b.v[i]; });
}
inline Vec Fma(Vec a, Vec b, Vec c) {
  return Lanewise([&](int i) { return MultiplyAdd(a.v[i], b.v[i], c.v[i]); });
}
inline Vec Max(Vec a, Vec b) {  // b if one is NaN
  return Lanewise([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline Vec Min(Vec a, Vec b) {  // b if one is NaN
  return Lanewise([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline Vec Round(Vec a) {
  // Adding and subtracting 1.5 * 2^23 rounds to nearest even; |a| stays far below 2^22 here.
  return Lanewise([&](int i) { return (a.v[i] + 12582912.0f) - 12582912.0f; });
}
inline Vec Abs(Vec a) {
  return Lanewise([&](int i) { return std::fabs(a.v[i]); });
}
inline Vec CopySign(Vec magnitude, Vec sign) {
  return Lanewise([&](int i) { return std::copysign(magnitude.v[i], sign.v[i]); });
}
// a < b ? yes : no for each lane. NaN compares false.
inline Vec SelectLess(Vec a, Vec b, Vec yes, Vec no) {
  return Lanewise([&](int i) { return a.v[i] < b.v[i] ? yes.v[i] : no.v[i]; });
}
// 2^n for integral n in [-126, 127], 0 for -127, anything for NaN.
inline Vec Exp2Int(Vec n) {
  // The sum has n + 127 in its lowest bits; a conversion to an integer would be undefined for NaN.
  return Lanewise([&](int i) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(n.v[i] + (12582912.0f + 127.0f)) << 23);
  });
}
inline void Prefetch(const void* p) { __builtin_prefetch(p); }
inline void PrefetchL2(const void* p) { __builtin_prefetch(p, 0, 2); }

struct Float32 {
  using Storage = float;
  static Vec LoadAs(const float* p) { return Vec::Load(p); }
  static void StoreAs(float* p, Vec x) { x.Store(p); }
};

struct BFloat16 {
  using Storage = uint16_t;
  static Vec LoadAs(const uint16_t* p) {
    return Lanewise([&](int i) { return BFloat16ToFloat(p[i]); });
  }
  static Vec LoadEven(const uint16_t* p) {
    return Lanewise([&](int i) { return BFloat16ToFloat(p[2 * i]); });
  }
  static Vec LoadOdd(const uint16_t* p) {
    return Lanewise([&](int i) { return BFloat16ToFloat(p[2 * i + 1]); });
  }
  static void StoreAs(uint16_t* p, Vec x) {
    for (int i = 0; i < Vec::kLanes; ++i) p[i] = FloatToBFloat16(x.v[i]);
  }
};

struct Float8 {
  static Vec LoadEven(const uint8_t* p) {
    return Lanewise([&](int i) { return Float8ToFloat(p[2 * i]); });
  }
  static Vec LoadOdd(const uint8_t* p) {
    return Lanewise([&](int i) { return Float8ToFloat(p[2 * i + 1]); });
  }
};

struct Float16 {
  using Storage = uint16_t;
  static Vec LoadAs(const uint16_t* p) {
    return Lanewise([&](int i) { return Float16ToFloat(p[i]); });
  }
  static void StoreAs(uint16_t* p, Vec x) {
    for (int i = 0; i < Vec::kLanes; ++i) p[i] = FloatToFloat16(x.v[i]);
  }
};

struct Int8 {
  using Storage = int8_t;
  static Vec LoadEven(const int8_t* p) {
    return Lanewise([&](int i) { return static_cast<float>(p[2 * i]); });
  }
  static Vec LoadOdd(const int8_t* p) {
    return Lanewise([&](int i) { return static_cast<float>(p[2 * i + 1]); });
  }
};

}  // namespace
}  // namespace mlc_native::kernels
