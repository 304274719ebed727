// Integer dot products that the levels of AVX2 share.
#pragma once

#include "kernels/cpu/dot_input.h"
#include "kernels/cpu/vec_avx2.h"

namespace mlc_native::kernels {
namespace {

struct IntVec {
  __m256i v;

  static IntVec Set(int32_t x) { return {_mm256_set1_epi32(x)}; }
};
inline Vec ToFloat(IntVec a) { return {_mm256_cvtepi32_ps(a.v)}; }
inline Vec BitsAsFloat(IntVec a) { return {_mm256_castsi256_ps(a.v)}; }

// Sums in place. With intrinsics, compilers add the products of several steps to each other first,
// for which there are not enough registers.
inline __m256i AddInPlace32(__m256i sum, __m256i x) {
  asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(x));
  return sum;
}
inline __m256i AddInPlace16(__m256i sum, __m256i x) {
  asm("vpaddw %1, %0, %0" : "+x"(sum) : "x"(x));
  return sum;
}

// Sums of 4 products of unsigned and signed bytes. Requires: pairs fit into 16 bits.
inline __m256i Quads(__m256i unsigned_bytes, __m256i signed_bytes) {
  const __m256i pairs = _mm256_maddubs_epi16(unsigned_bytes, signed_bytes);
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
inline IntVec AddQuads(IntVec sum, __m256i unsigned_bytes, __m256i signed_bytes) {
  return {_mm256_add_epi32(sum.v, Quads(unsigned_bytes, signed_bytes))};
}
inline IntVec AddQuadsInPlace(IntVec sum, __m256i unsigned_bytes, __m256i signed_bytes) {
  return {AddInPlace32(sum.v, Quads(unsigned_bytes, signed_bytes))};
}

struct Nibbles {
  static constexpr int kQuads = 2;
  static constexpr int kOffset = 8;
  using Quad = __m256i;
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i mask = _mm256_set1_epi8(15);
    w[0] = _mm256_and_si256(codes, mask);
    w[1] = _mm256_and_si256(_mm256_srli_epi16(codes, 4), mask);
  }
};

struct Twos {
  static constexpr int kQuads = 4;
  static constexpr int kOffset = 2;
  using Quad = __m256i;
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i mask = _mm256_set1_epi8(3);
    w[0] = _mm256_and_si256(codes, mask);
    w[1] = _mm256_and_si256(_mm256_srli_epi16(codes, 2), mask);
    w[2] = _mm256_and_si256(_mm256_srli_epi16(codes, 4), mask);
    w[3] = _mm256_and_si256(_mm256_srli_epi16(codes, 6), mask);
  }
};

// The last code of a column's bytes is in the two high bits of the three chunks.
struct Sixes {
  static constexpr int kChunks = kQ6Chunks;
  static constexpr int kQuads = kChunks + 1;
  static constexpr int kOffset = 32;
  using Quad = __m256i;
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    constexpr int kNext = kNextChunk<Vec::kLanes>;
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + kNext));
    const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 2 * kNext));
    const __m256i mask = _mm256_set1_epi8(63);
    w[0] = _mm256_and_si256(a, mask);
    w[1] = _mm256_and_si256(b, mask);
    w[2] = _mm256_and_si256(c, mask);
    const __m256i low = _mm256_and_si256(_mm256_srli_epi16(a, 6), _mm256_set1_epi8(0x03));
    const __m256i middle = _mm256_and_si256(_mm256_srli_epi16(b, 4), _mm256_set1_epi8(0x0c));
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(c, 2), _mm256_set1_epi8(0x30));
    w[3] = _mm256_or_si256(_mm256_or_si256(low, middle), high);
  }
};

// w = table[w].
template <int kQuads>
inline void LookUp(const void* table, __m256i (&w)[kQuads]) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(table));
  for (__m256i& quad : w) quad = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), quad);
}

// Indices of a table as codes.
template <const ByteTable& kTable>
struct TableNibbles : Nibbles {
  static constexpr int kOffset = kTable.offset;
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    Nibbles::Load(p, w);
    LookUp(kTable.bytes, w);
  }
};

template <typename Scale, int kGroup>
inline void QuantizeInputs(const float* x, int offset, QuantInput<kGroup>* out) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i bits =
      _mm256_setzero_si256();  // bits of absolute values, ordered like integers, NaN last
  for (int i = 0; i < kGroup; i += 8) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    bits = _mm256_max_epu32(bits, _mm256_and_si256(v, magnitude));
  }
  const __m128i four =
      _mm_max_epu32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
  const __m128i two = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
  const __m128i one = _mm_max_epu32(two, _mm_shuffle_epi32(two, 0xb1));
  const Scale scale(_mm_cvtss_f32(_mm_castsi128_ps(one)));
  const __m256 inverse = _mm256_set1_ps(scale.inverse);
  IntVec sums = IntVec::Set(0);
  constexpr int kVectors = kGroup < 32 ? kGroup / 8 : 4;  // at a time
  for (int i = 0; i < kGroup; i += 32) {
    __m256i v[4] = {};
    for (int j = 0; j < kVectors; ++j) {
      v[j] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i + 8 * j), inverse));
    }
    const __m256i packed =
        _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i codes = _mm256_permutevar8x32_epi32(packed, order);
    if constexpr (kGroup == 16) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out->codes), _mm256_castsi256_si128(codes));
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out->codes + i), codes);
    }
    sums = AddQuads(sums, _mm256_set1_epi8(1), codes);
  }
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(sums.v), _mm256_extracti128_si256(sums.v, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
  out->start = scale.Start() - offset * _mm_cvtsi128_si32(sum);
  out->factor = scale.Factor();
}

}  // namespace
}  // namespace mlc_native::kernels
