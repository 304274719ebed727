// Dot products of AVX-512 without BF16 and VNNI. dot_avx2.h describes the interface.
#pragma once

#include "kernels/cpu/dot_int_avx512.h"
// Requires Vec of the file above.
#include "kernels/cpu/dot_bf16_as_float.inl"

namespace mlc_native::kernels {
namespace {

constexpr int kQuantTileRows = 4;
using BFloat16Dot = FloatDot;

inline IntVec AddQuads(IntVec sum, __m512i unsigned_bytes, __m512i signed_bytes) {
  const __m512i pairs = _mm512_maddubs_epi16(unsigned_bytes, signed_bytes);
  return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
}

// Codes up to 255 would overflow 16 bits, so they are made signed and their sign is moved to the
// inputs.
struct Q8Codes {
  static constexpr int kQuads = 1;
  static constexpr int kOffset = 0;
  struct Quad {
    __m512i magnitude;
    __mmask64 negative;
  };
  static Quad OfSigned(__m512i codes) {
    return {_mm512_abs_epi8(codes), _mm512_movepi8_mask(codes)};
  }
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    w[0] = OfSigned(_mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(-128)));
  }
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) {
    const __m512i zero = _mm512_setzero_si512();
    return AddQuads(sum, w.magnitude, _mm512_mask_sub_epi8(x.v, w.negative, zero, x.v));
  }
};

struct Q4Codes : Nibbles {
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) { return AddQuads(sum, w, x.v); }
};

struct Q6Codes : Sixes {
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) { return AddQuads(sum, w, x.v); }
};

struct Q2Codes : Twos {
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) { return AddQuads(sum, w, x.v); }
};

template <const ByteTable& kTable>
struct SignedTableCodes : Q8Codes {
  static constexpr int kQuads = Nibbles::kQuads;
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    __m512i codes[kQuads];
    Nibbles::Load(p, codes);
    LookUp(kTable.values, codes);
    for (int i = 0; i < kQuads; ++i) w[i] = OfSigned(codes[i]);
  }
};
template <const ByteTable& kTable>
using TableCodes =
    std::conditional_t<kTable.PairsFit(), TableCodesOf<Q4Codes, kTable>, SignedTableCodes<kTable>>;

}  // namespace
}  // namespace mlc_native::kernels
