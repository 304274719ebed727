// Integer dot products that the AVX-512 levels share.
#pragma once

#include "kernels/cpu/dot_input.h"
#include "kernels/cpu/vec_avx512.h"

namespace mlc_native::kernels {
namespace {

struct IntVec {
  __m512i v;

  static IntVec Set(int32_t x) { return {_mm512_set1_epi32(x)}; }
  static IntVec Load(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
};
inline IntVec operator+(IntVec a, IntVec b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Vec ToFloat(IntVec a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline Vec BitsAsFloat(IntVec a) { return {_mm512_castsi512_ps(a.v)}; }

struct Nibbles {
  static constexpr int kQuads = 2;
  static constexpr int kOffset = 8;
  using Quad = __m512i;
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    const __m512i codes = _mm512_loadu_si512(p);
    const __m512i mask = _mm512_set1_epi8(15);
    w[0] = _mm512_and_si512(codes, mask);
    w[1] = _mm512_and_si512(_mm512_srli_epi16(codes, 4), mask);
  }
};

struct Twos {
  static constexpr int kQuads = 4;
  static constexpr int kOffset = 2;
  static constexpr int kWideFromTiles = 2;  // reading them takes half of a tile's instructions
  using Quad = __m512i;
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    const __m512i codes = _mm512_loadu_si512(p);
    const __m512i mask = _mm512_set1_epi8(3);
    w[0] = _mm512_and_si512(codes, mask);
    w[1] = _mm512_and_si512(_mm512_srli_epi16(codes, 2), mask);
    w[2] = _mm512_and_si512(_mm512_srli_epi16(codes, 4), mask);
    w[3] = _mm512_and_si512(_mm512_srli_epi16(codes, 6), mask);
  }
};

// The last code of a column's bytes is in the two high bits of the three chunks.
struct Sixes {
  static constexpr int kChunks = kQ6Chunks;
  static constexpr int kQuads = kChunks + 1;
  static constexpr int kOffset = 32;
  static constexpr int kWideFromTiles = 2;  // as Twos
  using Quad = __m512i;
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    constexpr int kNext = kNextChunk<Vec::kLanes>;
    const __m512i a = _mm512_loadu_si512(p);
    const __m512i b = _mm512_loadu_si512(p + kNext);
    const __m512i c = _mm512_loadu_si512(p + 2 * kNext);
    const __m512i mask = _mm512_set1_epi8(63);
    w[0] = _mm512_and_si512(a, mask);
    w[1] = _mm512_and_si512(b, mask);
    w[2] = _mm512_and_si512(c, mask);
    const __m512i low = _mm512_and_si512(_mm512_srli_epi16(a, 6), _mm512_set1_epi8(0x03));
    const __m512i middle = _mm512_and_si512(_mm512_srli_epi16(b, 4), _mm512_set1_epi8(0x0c));
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(c, 2), _mm512_set1_epi8(0x30));
    w[3] = _mm512_or_si512(_mm512_or_si512(low, middle), high);
  }
};

// w = table[w].
template <int kQuads>
inline void LookUp(const void* table, __m512i (&w)[kQuads]) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(table));
  for (__m512i& quad : w) quad = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), quad);
}

// The values of a table, with the nibbles and the dot product of Q4Codes.
template <typename Q4Codes, const ByteTable& kTable>
struct TableCodesOf : Q4Codes {
  static constexpr int kOffset = kTable.offset;
  static void Load(const uint8_t* p, typename Q4Codes::Quad (&w)[Q4Codes::kQuads]) {
    Q4Codes::Load(p, w);
    LookUp(kTable.bytes, w);
  }
};

template <typename Scale, int kGroup>
inline void QuantizeInputs(const float* x, int offset, QuantInput<kGroup>* out) {
  constexpr int kVectors = kGroup / Vec::kLanes;
  // The bits of absolute values are ordered like integers, NaN last.
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i bits = _mm512_setzero_si512();
  for (int i = 0; i < kVectors; ++i) {
    const __m512i v = _mm512_loadu_si512(x + i * Vec::kLanes);
    bits = _mm512_max_epu32(bits, _mm512_and_si512(v, magnitude));
  }
  const Scale scale(__builtin_bit_cast(float, _mm512_reduce_max_epu32(bits)));
  const __m512 inverse = _mm512_set1_ps(scale.inverse);
  // NaN would convert to the smallest integer, which the sum of the codes has no room for.
  const __mmask16 any = scale.inverse != 0 ? 0xffff : 0;
  __m512i sum = _mm512_setzero_si512();
  for (int i = 0; i < kVectors; ++i) {
    const __m512 v = _mm512_loadu_ps(x + i * Vec::kLanes);
    const __m512i codes = _mm512_maskz_cvtps_epi32(any, _mm512_mul_ps(v, inverse));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out->codes) + i, _mm512_cvtepi32_epi8(codes));
    sum = _mm512_add_epi32(sum, codes);
  }
  out->start = scale.Start() - offset * _mm512_reduce_add_epi32(sum);
  out->factor = scale.Factor();
}

}  // namespace
}  // namespace mlc_native::kernels
