// Dot products of AVX-512 with BF16 and VNNI. What an ISA gives here is described in dot_avx2.h.
#pragma once

#include "kernels/cpu/dot_int_avx512.h"
#include "kernels/kv_format.h"

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

// KV formats in pairs, see kv_pages.inl. Inputs are rounded to bfloat16; codes of 8 bits are exact.
template <typename T, KvFormat kKvFormat>
struct BFloat16Pairs {
  using Storage = typename T::Storage;
  using Element = T;
  static constexpr KvFormat kFormat = kKvFormat;
  static constexpr int kParts = 1;
  static constexpr int64_t kStep = 2;

  static void PackInputs(float* x, int64_t pairs) {
    for (int64_t i = 0; i < pairs; i += 16) {
      const __m512bh v =
          _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 2 * i + 16), _mm512_loadu_ps(x + 2 * i));
      _mm512_storeu_si512(x + i, __builtin_bit_cast(__m512i, v));
    }
  }
  static __m512i Input(const float* x, int64_t pair, int) {
    return _mm512_set1_epi32(__builtin_bit_cast(int32_t, x[pair]));
  }
  template <int kTokens>
  static __m512i LoadPairs(const Storage* p, int64_t, int) {
    const __m512i pairs = T::LoadBFloat16(p);
    if constexpr (kTokens == 3) return pairs;
    return _mm512_and_si512(pairs, _mm512_set1_epi32(kTokens == 1 ? 0x0000ffff : -65536));
  }
  static Vec Add(Vec sum, __m512i x, __m512i y) {
    return {
        _mm512_dpbf16_ps(sum.v, __builtin_bit_cast(__m512bh, x), __builtin_bit_cast(__m512bh, y))};
  }
};
struct BFloat16Elements : BFloat16 {
  static __m512i LoadBFloat16(const uint16_t* p) { return _mm512_loadu_si512(p); }
};
struct Int8Elements {
  using Storage = int8_t;
  static __m512i LoadBFloat16(const int8_t* p) {
    const auto floats = [p](int at) {
      const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + at));
      return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
    };
    return __builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(floats(16), floats(0)));
  }
};
using KvBFloat16 = BFloat16Pairs<BFloat16Elements, KvFormat::kBFloat16>;
using KvInt8 = BFloat16Pairs<Int8Elements, KvFormat::kInt8>;

}  // namespace
}  // namespace mlc_native::kernels
