// A vector of floats and the element types of memory for AVX2 + FMA + F16C: 8 floats. The vec_*.h
// of an ISA provides:
//
//   kTileRows     rows of two vectors whose sums fit into the registers together with the operands
//   Vec           kLanes floats (a divisor of kPageSize, at most kMaxLanes); Zero, Set, Load, Store
//                 (any address), + - * /
//   Fma           a * b + c, rounded once (twice where the target has no instruction for it)
//   Max, Min, Round, Abs, CopySign, SelectLess, Exp2Int
//   Prefetch, PrefetchL2   into the level-1 cache, into the level-2 cache
//                 (the others are documented at each function)
//   Float32, BFloat16, Float16   in memory: Storage; LoadAs: kLanes consecutive elements; StoreAs:
//                 rounds to nearest even and keeps NaN
//   BFloat16, Int8, Float8   LoadEven, LoadOdd: every other one of 2 * kLanes elements; Float8 also
//                 has LoadAs where the dot_*.h reads it
//
// AVX2 + FMA + F16C here: 8 floats. Included by the translation units of AVX2 only,
// hence the unnamed namespace: nothing compiled with AVX2 flags may be visible to, or shared with,
// other code.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace mlc_native::kernels {
namespace {

constexpr int kTileRows = 6;  // 6 rows x 2 vectors = 12 of the 16 registers

struct Vec {
  static constexpr int kLanes = 8;
  __m256 v;

  static Vec Zero() { return {_mm256_setzero_ps()}; }
  static Vec Set(float x) { return {_mm256_set1_ps(x)}; }
  static Vec Load(const float* p) { return {_mm256_loadu_ps(p)}; }
  void Store(float* p) const { _mm256_storeu_ps(p, v); }
};

inline Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
inline Vec Fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec Max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }  // b if one is NaN
inline Vec Min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }  // b if one is NaN
// Rounds to nearest even. Requires: |a| < 2^22.
inline Vec Round(Vec a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline Vec Abs(Vec a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
inline Vec CopySign(Vec magnitude, Vec sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(bit, magnitude.v), _mm256_and_ps(bit, sign.v))};
}
// a < b ? yes : no for each lane. NaN compares false.
inline Vec SelectLess(Vec a, Vec b, Vec yes, Vec no) {
  return {_mm256_blendv_ps(no.v, yes.v, _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ))};
}
// 2^n for integral n in [-126, 127], 0 for -127.
inline Vec Exp2Int(Vec n) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(biased, 23))};
}
inline void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline void PrefetchL2(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

struct Float32 {
  using Storage = float;
  static Vec LoadAs(const float* p) { return Vec::Load(p); }
  static void StoreAs(float* p, Vec x) { x.Store(p); }
};

struct BFloat16 {
  using Storage = uint16_t;
  static Vec LoadAs(const uint16_t* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))};
  }
  static Vec LoadEven(const uint16_t* p) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16))};
  }
  static Vec LoadOdd(const uint16_t* p) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-65536)))};
  }
  static void StoreAs(uint16_t* p, Vec x) {
    const __m256i bits = _mm256_castps_si256(x.v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
    const __m256i half = _mm256_blendv_epi8(rounded, quiet, is_nan);
    const __m256i packed = _mm256_packus_epi32(half, half);  // per 128-bit half
    const __m256i joined = _mm256_permute4x64_epi64(packed, 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(joined));
  }
};

// E4M3, except its NaN. The bits in the places of float16's are 2^-8 of the value. The conversion
// of subnormal halves takes no longer, unlike operations on subnormal floats.
struct Float8 {
  static Vec LoadEven(const uint8_t* p) {
    const __m128i pairs = Pairs(p);
    return FromPlaces(_mm_slli_epi16(pairs, 7), _mm_slli_epi16(pairs, 8));
  }
  static Vec LoadOdd(const uint8_t* p) {
    const __m128i pairs = Pairs(p);
    return FromPlaces(_mm_srli_epi16(pairs, 1), pairs);
  }

 private:
  static __m128i Pairs(const uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static Vec FromPlaces(__m128i sizes, __m128i signs) {
    const __m128i places = _mm_or_si128(_mm_and_si128(sizes, _mm_set1_epi16(0x3f80)),
                                        _mm_and_si128(signs, _mm_set1_epi16(INT16_MIN)));
    return {_mm256_mul_ps(_mm256_cvtph_ps(places), _mm256_set1_ps(256.0f))};
  }
};

struct Float16 {
  using Storage = uint16_t;
  static Vec LoadAs(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  static void StoreAs(uint16_t* p, Vec x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
  }
};

struct Int8 {  // codes of KV pages, only in pairs
  using Storage = int8_t;
  static Vec LoadEven(const int8_t* p) {
    return {_mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(Words(p), 16), 16))};
  }
  static Vec LoadOdd(const int8_t* p) {
    return {_mm256_cvtepi32_ps(_mm256_srai_epi32(Words(p), 16))};
  }

 private:
  static __m256i Words(const int8_t* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};

}  // namespace
}  // namespace mlc_native::kernels
