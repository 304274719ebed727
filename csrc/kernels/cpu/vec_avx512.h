// Vec for AVX-512 (F, BW, DQ, VL): 16 floats. vec_avx2.h describes the interface and the unnamed
// namespace.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace mlc_native::kernels {
namespace {

constexpr int kTileRows = 12;  // 12 rows x 2 vectors = 24 of the 32 registers

struct Vec {
  static constexpr int kLanes = 16;
  __m512 v;

  static Vec Zero() { return {_mm512_setzero_ps()}; }
  static Vec Set(float x) { return {_mm512_set1_ps(x)}; }
  static Vec Load(const float* p) { return {_mm512_loadu_ps(p)}; }
  void Store(float* p) const { _mm512_storeu_ps(p, v); }
};

inline Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vec Fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec Max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }  // b if one is NaN
inline Vec Min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }  // b if one is NaN
inline Vec Round(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline Vec Abs(Vec a) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v)}; }
inline Vec CopySign(Vec magnitude, Vec sign) {
  const __m512 bit = _mm512_set1_ps(-0.0f);
  return {_mm512_or_ps(_mm512_andnot_ps(bit, magnitude.v), _mm512_and_ps(bit, sign.v))};
}
// a < b ? yes : no for each lane. NaN compares false.
inline Vec SelectLess(Vec a, Vec b, Vec yes, Vec no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
// 2^n for integral n in [-126, 127], 0 for -127.
inline Vec Exp2Int(Vec n) {
  const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
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
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
  }
  static Vec LoadEven(const uint16_t* p) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16))};
  }
  static Vec LoadOdd(const uint16_t* p) {
    const __m512i high = _mm512_set1_epi32(-65536);
    return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), high))};
  }
  static void StoreAs(uint16_t* p, Vec x) {
    const __m512i bits = _mm512_castps_si512(x.v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
    const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
    const __m512i half = _mm512_mask_blend_epi32(is_nan, rounded, quiet);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(half));
  }
};

// E4M3, except its NaN. The bits in the places of float16's are 2^-8 of the value. The conversion
// of subnormal halves takes no longer, unlike operations on subnormal floats.
struct Float8 {
  static Vec LoadEven(const uint8_t* p) {
    const __m256i pairs = Pairs(p);
    return FromPlaces(_mm256_slli_epi16(pairs, 7), _mm256_slli_epi16(pairs, 8));
  }
  static Vec LoadOdd(const uint8_t* p) {
    const __m256i pairs = Pairs(p);
    return FromPlaces(_mm256_srli_epi16(pairs, 1), pairs);
  }

 private:
  static __m256i Pairs(const uint8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static Vec FromPlaces(__m256i sizes, __m256i signs) {
    const __m256i places = _mm256_or_si256(_mm256_and_si256(sizes, _mm256_set1_epi16(0x3f80)),
                                           _mm256_and_si256(signs, _mm256_set1_epi16(INT16_MIN)));
    return {_mm512_mul_ps(_mm512_cvtph_ps(places), _mm512_set1_ps(256.0f))};
  }
};

struct Float16 {
  using Storage = uint16_t;
  static Vec LoadAs(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  static void StoreAs(uint16_t* p, Vec x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
};

struct Int8 {
  using Storage = int8_t;
  static Vec LoadEven(const int8_t* p) {
    return {_mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(Words(p), 16), 16))};
  }
  static Vec LoadOdd(const int8_t* p) {
    return {_mm512_cvtepi32_ps(_mm512_srai_epi32(Words(p), 16))};
  }

 private:
  static __m512i Words(const int8_t* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
};

}  // namespace
}  // namespace mlc_native::kernels
