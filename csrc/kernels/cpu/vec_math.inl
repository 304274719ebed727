// Exp, Tanh, partial loads and fixed-order sums on Vec: one definition for every kernel, so that
// the same element gives the same bits wherever it is computed. Included by the other .inl files
// only.
#pragma once

#include "kernels/cpu/table.h"

namespace mlc_native::kernels {
namespace {

constexpr int64_t Min64(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t Max64(int64_t a, int64_t b) { return a > b ? a : b; }

constexpr float kLowestExponent = -87.3f;

// e^x for x clamped to [-87.3, 88], with a relative error below 2e-7. NaN stays NaN.
// x = n ln2 + r, e^r by Cephes' expf polynomial (netlib.org/cephes, expf.c).
inline Vec ClampedExp(Vec x) {
  const Vec clamped = Max(Vec::Set(kLowestExponent), Min(Vec::Set(88.0f), x));
  const Vec n = Round(clamped * Vec::Set(1.44269504088896341f));
  Vec r = Fma(n, Vec::Set(-0.693359375f), clamped);
  r = Fma(n, Vec::Set(2.12194440e-4f), r);
  Vec p = Vec::Set(1.9875691500e-4f);
  p = Fma(p, r, Vec::Set(1.3981999507e-3f));
  p = Fma(p, r, Vec::Set(8.3334519073e-3f));
  p = Fma(p, r, Vec::Set(4.1665795894e-2f));
  p = Fma(p, r, Vec::Set(1.6666665459e-1f));
  p = Fma(p, r, Vec::Set(5.0000001201e-1f));
  return (Fma(p, r * r, r) + Vec::Set(1.0f)) * Exp2Int(n);
}

// The same, except that the result is 0 below -87.3 (also for -inf).
inline Vec Exp(Vec x) {
  return SelectLess(x, Vec::Set(kLowestExponent), Vec::Zero(), ClampedExp(x));
}

// 2^x for x <= 0, with a relative error below 2e-7; 0 below -126.5 (also for -inf). NaN stays NaN.
// The polynomial has the least relative error on [-0.5, 0.5].
inline Vec Exp2(Vec x) {
  const Vec clamped = Max(Vec::Set(-127.0f), x);
  const Vec n = Round(clamped);
  const Vec r = clamped - n;
  Vec p = Vec::Set(1.326472032815218e-3f);
  p = Fma(p, r, Vec::Set(9.671512991189957e-3f));
  p = Fma(p, r, Vec::Set(5.550733581185341e-2f));
  p = Fma(p, r, Vec::Set(2.4022242426872253e-1f));
  p = Fma(p, r, Vec::Set(6.931470036506653e-1f));
  p = Fma(p, r, Vec::Set(1.0f));
  return p * Exp2Int(n);
}

// Cephes' tanhf: an odd polynomial below 0.625 in magnitude, 1 - 2 / (e^2|x| + 1) above.
inline Vec Tanh(Vec x) {
  const Vec magnitude = Abs(x);
  const Vec z = x * x;
  Vec p = Vec::Set(-5.70498872745e-3f);
  p = Fma(p, z, Vec::Set(2.06390887954e-2f));
  p = Fma(p, z, Vec::Set(-5.37397155531e-2f));
  p = Fma(p, z, Vec::Set(1.33314422036e-1f));
  p = Fma(p, z, Vec::Set(-3.33332819422e-1f));
  const Vec small = Fma(p * z, x, x);
  const Vec e = Exp(magnitude + magnitude);
  const Vec large = Vec::Set(1.0f) - Vec::Set(2.0f) / (e + Vec::Set(1.0f));
  return SelectLess(magnitude, Vec::Set(0.625f), small, CopySign(large, x));
}

// log(1 + e^x) with a relative error below 4e-7. Of u = e^-|x|, log(1 + u) = 2 atanh(u / (2 + u)),
// whose argument is at most 1/3, by the series of atanh.
inline Vec Softplus(Vec x) {
  const Vec u = Exp(Vec::Zero() - Abs(x));
  const Vec s = u / (Vec::Set(2.0f) + u);
  const Vec z = s * s;
  Vec p = Vec::Set(2.0f / 13);
  p = Fma(p, z, Vec::Set(2.0f / 11));
  p = Fma(p, z, Vec::Set(2.0f / 9));
  p = Fma(p, z, Vec::Set(2.0f / 7));
  p = Fma(p, z, Vec::Set(2.0f / 5));
  p = Fma(p, z, Vec::Set(2.0f / 3));
  p = Fma(p, z, Vec::Set(2.0f));
  return Fma(p, s, Max(Vec::Zero(), x));
}

// x / (1 + e^-u)
inline Vec TimesSigmoid(Vec x, Vec u) { return x / (Vec::Set(1.0f) + ClampedExp(Vec::Zero() - u)); }

// Loads the first `count` < kLanes elements; the other lanes are zero. No memory beyond is
// accessed.
inline Vec LoadPartial(const float* p, int64_t count) {
  float lanes[Vec::kLanes] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  return Vec::Load(lanes);
}
inline void StorePartial(float* p, Vec x, int64_t count) {
  float lanes[Vec::kLanes];
  x.Store(lanes);
  for (int64_t i = 0; i < count; ++i) p[i] = lanes[i];
}
template <typename T>
inline Vec LoadPartialAs(const typename T::Storage* p, int64_t count) {
  typename T::Storage lanes[Vec::kLanes] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  return T::LoadAs(lanes);
}
template <typename T>
inline void StorePartialAs(typename T::Storage* p, Vec x, int64_t count) {
  typename T::Storage lanes[Vec::kLanes];
  T::StoreAs(lanes, x);
  for (int64_t i = 0; i < count; ++i) p[i] = lanes[i];
}

// Lanes as vectors of GCC and Clang, whose shuffles stay in registers on every ISA.
template <int kCount>
using Lanes __attribute__((vector_size(kCount * sizeof(float)))) = float;

// Sums the lanes in a halving tree.
inline float Sum(Lanes<4> x) {
  const Lanes<4> half = x + __builtin_shufflevector(x, x, 2, 3, 2, 3);
  return half[0] + half[1];
}
inline float Sum(Lanes<8> x) {
  return Sum(__builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 4, 5, 6, 7));
}
inline float Sum(Lanes<16> x) {
  return Sum(__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
             __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15));
}
inline float Sum(Vec x) { return Sum(__builtin_bit_cast(Lanes<Vec::kLanes>, x)); }

// The greatest lane, in the same tree.
template <int kCount>
inline Lanes<kCount> Greater(Lanes<kCount> a, Lanes<kCount> b) {
  return a > b ? a : b;
}
inline float MaxLane(Lanes<4> x) {
  const Lanes<4> half = Greater<4>(x, __builtin_shufflevector(x, x, 2, 3, 2, 3));
  return half[0] > half[1] ? half[0] : half[1];
}
inline float MaxLane(Lanes<8> x) {
  return MaxLane(Greater<4>(__builtin_shufflevector(x, x, 0, 1, 2, 3),
                            __builtin_shufflevector(x, x, 4, 5, 6, 7)));
}
inline float MaxLane(Lanes<16> x) {
  return MaxLane(Greater<8>(__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7),
                            __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15)));
}
inline float MaxLane(Vec x) { return MaxLane(__builtin_bit_cast(Lanes<Vec::kLanes>, x)); }

// Calls f(offset, load, store) over [0, n): whole vectors, then the tail through partial loads and
// stores, so that every element goes through the same vector arithmetic.
template <typename F>
inline void ForVectors(int64_t n, F f) {
  int64_t i = 0;
  for (; i + Vec::kLanes <= n; i += Vec::kLanes) {
    f(
        i, [i](const float* p) { return Vec::Load(p + i); },
        [i](float* p, Vec x) { x.Store(p + i); });
  }
  if (i < n) {
    f(
        i, [i, n](const float* p) { return LoadPartial(p + i, n - i); },
        [i, n](float* p, Vec x) { StorePartial(p + i, x, n - i); });
  }
}

inline Vec CapScore(Vec x, float cap) { return Tanh(x / Vec::Set(cap)) * Vec::Set(cap); }

template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};

// The sizes that tiles of rows are compiled for: kMax and, of these, the smaller ones. Rows are
// independent, so a tile of another size is as good as two of these.
constexpr int kTileSizes[] = {1, 2, 3, 4, 6, 8, 12};
constexpr int TileSizeBelow(int rows) {
  int below = 1;
  for (const int size : kTileSizes) below = size < rows ? size : below;
  return below;
}

// Calls f(Constant<size>) with the largest size that is at most `rows`.
template <int kMax, typename F>
inline void WithTileSize(int64_t rows, F f) {
  if constexpr (kMax > 1) {
    if (rows < kMax) return WithTileSize<TileSizeBelow(kMax)>(rows, f);
  }
  f(Constant<kMax>{});
}

// Calls f(type) with the element type's struct.
template <typename F>
inline void WithType(DType dtype, F f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(Float32{});
    case DType::kBFloat16:
      return f(BFloat16{});
    case DType::kFloat16:
      return f(Float16{});
  }
}

}  // namespace
}  // namespace mlc_native::kernels
