// Integer dot products that the levels of AVX-512 with VNNI share.
#pragma once

#include "kernels/cpu/dot_int_avx512.h"

namespace mlc_native::kernels {
namespace {

constexpr int kQuantTileRows = 6;  // 6 rows x 2 vectors, as integers and as floats

struct VnniQ8Codes {
  static constexpr int kQuads = 1;
  static constexpr int kOffset = 128;
  using Quad = __m512i;
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) { w[0] = _mm512_loadu_si512(p); }
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) {
    return {_mm512_dpbusd_epi32(sum.v, w, x.v)};
  }
};

struct VnniQ4Codes : Nibbles {
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) { return VnniQ8Codes::Dot(sum, w, x); }
};

struct VnniQ6Codes : Sixes {
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) { return VnniQ8Codes::Dot(sum, w, x); }
};

struct VnniQ2Codes : Twos {
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) { return VnniQ8Codes::Dot(sum, w, x); }
};

template <const ByteTable& kTable>
using VnniTableCodes = TableCodesOf<VnniQ4Codes, kTable>;

}  // namespace
}  // namespace mlc_native::kernels
