// Dot products of AVX2 with AVX-VNNI. dot_avx2.h describes the interface.
#pragma once

#include "kernels/cpu/dot_int_avx2.h"
// Requires Vec of the file above.
#include "kernels/cpu/dot_bf16_as_float.inl"

namespace mlc_native::kernels {
namespace {

constexpr int kQuantTileRows = 4;
using BFloat16Dot = FloatDot;

struct Q8Codes {
  static constexpr int kQuads = 1;
  static constexpr int kOffset = 128;
  using Quad = __m256i;
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    w[0] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) {
    return {_mm256_dpbusd_avx_epi32(sum.v, w, x.v)};
  }
};

struct Q4Codes : Nibbles {
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) { return Q8Codes::Dot(sum, w, x); }
};

struct Q6Codes : Sixes {
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) { return Q8Codes::Dot(sum, w, x); }
};

struct Q2Codes : Twos {
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) { return Q8Codes::Dot(sum, w, x); }
};

template <const ByteTable& kTable>
struct TableCodes : TableNibbles<kTable> {
  static IntVec Dot(IntVec sum, const __m256i& w, IntVec x) { return Q8Codes::Dot(sum, w, x); }
};

}  // namespace
}  // namespace mlc_native::kernels
