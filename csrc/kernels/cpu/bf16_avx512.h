// Pairs of bfloat16 for the levels of AVX-512 with BF16, which dot_bf16_pairs.inl multiplies.
#pragma once

#include <cstdint>

#include "kernels/cpu/vec_avx512.h"

namespace mlc_native::kernels {
namespace {

// vdpbf16ps adds the product of the odd k, rounds, adds that of the even k and rounds again. It
// treats subnormals as zeros.
struct BFloat16Vec {
  __m512i v;

  static BFloat16Vec Set(int32_t pair) { return {_mm512_set1_epi32(pair)}; }
  static BFloat16Vec Load(const uint16_t* p) { return {_mm512_loadu_si512(p)}; }
  static BFloat16Vec Load(const int8_t* p) {
    const auto floats = [p](int at) {
      const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + at));
      return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
    };
    return {__builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(floats(16), floats(0)))};
  }
  // E4M3, except its NaN, in integers: what floats do with the subnormals among them takes a
  // hundred times as long. Those are m / 8 * 2^-6 with m in [0, 7].
  static BFloat16Vec Load(const uint8_t* p) {
    const __m512i codes =
        _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    const __m512i sizes = _mm512_and_si512(codes, _mm512_set1_epi16(0x7f));
    const __m512i normal =
        _mm512_add_epi16(_mm512_slli_epi16(sizes, 4), _mm512_set1_epi16((127 - 7) << 7));
    const __m512i subnormals = _mm512_broadcast_i32x4(
        _mm_setr_epi16(0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60));  // by m
    const __m512i values = _mm512_mask_permutexvar_epi16(
        normal, _mm512_cmplt_epu16_mask(sizes, _mm512_set1_epi16(8)), sizes, subnormals);
    const __m512i signs = _mm512_and_si512(codes, _mm512_set1_epi16(INT16_MIN));
    return {_mm512_or_si512(values, signs)};
  }
  static BFloat16Vec Round(const float* x) {
    const __m512bh v = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x));
    return {__builtin_bit_cast(__m512i, v)};
  }
  void Store(void* p) const { _mm512_storeu_si512(p, v); }
};
inline BFloat16Vec operator&(BFloat16Vec a, BFloat16Vec b) { return {_mm512_and_si512(a.v, b.v)}; }
inline Vec Dot(Vec sum, BFloat16Vec x, BFloat16Vec y) {
  return {_mm512_dpbf16_ps(sum.v, __builtin_bit_cast(__m512bh, x.v),
                           __builtin_bit_cast(__m512bh, y.v))};
}

}  // namespace
}  // namespace mlc_native::kernels
