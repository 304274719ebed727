// Dot products of AVX-512 with BF16 and VNNI. What an ISA gives here is described in dot_avx2.h.
#pragma once

#include "kernels/cpu/dot_int_avx512.h"

namespace mlc_native::kernels {
namespace {

constexpr int kQuantTileRows = 6;  // 6 rows x 2 vectors, as integers and as floats

// Inputs are rounded to bfloat16. vdpbf16ps adds the product of the odd k, rounds, adds that of
// the even k and rounds again; it takes subnormals for zeros.
struct BFloat16Dot {
  using Input = uint32_t;  // the inputs of two k

  static void Convert(const float* x, int64_t pairs, Input* out) {
    for (int64_t i = 0; i < pairs; i += 16) {
      const __m512bh v =
          _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 2 * i + 16), _mm512_loadu_ps(x + 2 * i));
      _mm512_storeu_si512(out + i, __builtin_bit_cast(__m512i, v));
    }
  }

  // Two k of all columns of a panel.
  struct Weights {
    __m512bh v[2];

    explicit Weights(const uint16_t* w)
        : v{__builtin_bit_cast(__m512bh, _mm512_loadu_si512(w)),
            __builtin_bit_cast(__m512bh, _mm512_loadu_si512(w + 2 * Vec::kLanes))} {}
    void AddTo(Vec (&sums)[2], Input x) const {
      const auto input = __builtin_bit_cast(__m512bh, _mm512_set1_epi32(static_cast<int>(x)));
      sums[0].v = _mm512_dpbf16_ps(sums[0].v, input, v[0]);
      sums[1].v = _mm512_dpbf16_ps(sums[1].v, input, v[1]);
    }
  };
};

struct Q8Codes {
  static constexpr int kQuads = 1;
  static constexpr int kOffset = 128;
  using Quad = __m512i;
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) { w[0] = _mm512_loadu_si512(p); }
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) {
    return {_mm512_dpbusd_epi32(sum.v, w, x.v)};
  }
};

struct Q4Codes : Nibbles {
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) { return Q8Codes::Dot(sum, w, x); }
};

}  // namespace
}  // namespace mlc_native::kernels
