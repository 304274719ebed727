// Products of bfloat16 and of 8-bit integers for AVX2. Together with vec_*.h (see vec_avx2.h), the
// dot_*.h of an ISA provides:
//
//   kQuantTileRows         Like kTileRows, for quantized weights: sums of integers and of floats.
//   BFloat16Dot            Input: the inputs of two k. Convert: floats to Inputs. Weights: two k of
//                          a panel, in the form of the products. Add: adds the products of two k,
//                          as a panel or Weights have them, and the inputs of some rows.
//   KvBFloat16, KvInt8     See kv_pages.inl. They and BFloat16Dot are in dot_bf16_pairs.inl for
//                          ISAs with a dot product of bfloat16, else in dot_bf16_as_float.inl.
//   IntVec                 As many int32 as Vec has floats. ToFloat converts the values,
//                          BitsAsFloat reinterprets them.
//   Q8Codes, Q6Codes,      Load: kQuads vectors of 4 codes per column, from kChunks chunks (1
//   Q4Codes, Q2Codes,      unless Codes say so). Dot adds the 4 products of each column, with codes
//   TableCodes<table>      that are kOffset too large, to an IntVec; or to
//                          their own Sum, for which StartSum and Total are overloaded: see
//                          formats.inl. DotInPlace: the same where registers are short.
//   QuantizeInputs         Quantizes a group of inputs to 8 bits: codes = x * Scale::inverse,
//                          rounded to nearest even, with the same bits on every ISA.
#pragma once

#include "kernels/cpu/dot_int_avx2.h"
// Requires Vec of the file above.
#include "kernels/cpu/dot_bf16_as_float.inl"

namespace mlc_native::kernels {
namespace {

constexpr int kQuantTileRows = 4;
using BFloat16Dot = FloatDot;

// Codes up to 255 would overflow 16 bits, so they are made signed and their sign is moved to the
// inputs.
struct Q8Codes {
  static constexpr int kQuads = 1;
  static constexpr int kOffset = 0;
  struct Quad {
    __m256i magnitude;
    __m256i sign;
  };
  static Quad OfSigned(__m256i codes) { return {_mm256_abs_epi8(codes), codes}; }
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    w[0] = OfSigned(_mm256_xor_si256(codes, _mm256_set1_epi8(-128)));
  }
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) {
    return AddQuads(sum, w.magnitude, _mm256_sign_epi8(x.v, w.sign));
  }
  static IntVec DotInPlace(IntVec sum, const Quad& w, IntVec x) {
    return AddQuadsInPlace(sum, w.magnitude, _mm256_sign_epi8(x.v, w.sign));
  }
};

// Sums of two products in 16 bits. Those of a group fit: 8 times 2 * 15 * 127 is below 2^15.
struct PairSums {
  __m256i v;
};
inline void StartSum(PairSums& sum, int32_t) { sum = {_mm256_setzero_si256()}; }
inline IntVec Total(PairSums sum, int32_t start) {
  const __m256i quads = _mm256_madd_epi16(sum.v, _mm256_set1_epi16(1));
  return {_mm256_add_epi32(quads, _mm256_set1_epi32(start))};
}

struct Q4Codes : Nibbles {
  static_assert(LayoutOf(WeightFormat::kQ4).group == 32);
  using Sum = PairSums;
  static PairSums Dot(PairSums sum, const Quad& w, IntVec x) {
    return {_mm256_add_epi16(sum.v, _mm256_maddubs_epi16(w, x.v))};
  }
  static PairSums DotInPlace(PairSums sum, const Quad& w, IntVec x) {
    return {AddInPlace16(sum.v, _mm256_maddubs_epi16(w, x.v))};
  }
};

struct Q2Codes : Twos {
  using Sum = PairSums;
  static PairSums Dot(PairSums sum, const Quad& w, IntVec x) { return Q4Codes::Dot(sum, w, x); }
  static PairSums DotInPlace(PairSums sum, const Quad& w, IntVec x) {
    return Q4Codes::DotInPlace(sum, w, x);
  }
};

struct Q6Codes : Sixes {
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) { return AddQuads(sum, w, x.v); }
  static IntVec DotInPlace(IntVec sum, const Quad& w, IntVec x) {
    return AddQuadsInPlace(sum, w, x.v);
  }
};

template <const ByteTable& kTable>
struct SignedTableCodes : Q8Codes {
  static constexpr int kQuads = Nibbles::kQuads;
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    __m256i codes[kQuads];
    Nibbles::Load(p, codes);
    LookUp(kTable.values, codes);
    for (int i = 0; i < kQuads; ++i) w[i] = OfSigned(codes[i]);
  }
};

template <const ByteTable& kTable>
struct SmallTableCodes : TableNibbles<kTable> {
  using Quad = Nibbles::Quad;
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) { return AddQuads(sum, w, x.v); }
  static IntVec DotInPlace(IntVec sum, const Quad& w, IntVec x) {
    return AddQuadsInPlace(sum, w, x.v);
  }
};
template <const ByteTable& kTable>
using TableCodes =
    std::conditional_t<kTable.PairsFit(), SmallTableCodes<kTable>, SignedTableCodes<kTable>>;

}  // namespace
}  // namespace mlc_native::kernels
