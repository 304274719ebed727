// Dot products of NEON with FEAT_DotProd and FEAT_BF16. What an ISA gives here is described in
// dot_avx2.h.
#pragma once

#include "kernels/cpu/dot_int_neon.h"
#include "kernels/kv_format.h"

namespace mlc_native::kernels {
namespace {

inline bfloat16x8_t RoundToBFloat16(float32x4_t lo, float32x4_t hi) {
  return vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(lo), hi);
}

// Inputs are rounded to bfloat16. bfdot adds up the two products before the sum, rounds to odd and
// takes subnormals for zeros (with FPCR.EBF clear, as it is by default).
struct BFloat16Dot {
  using Input = uint32_t;  // the inputs of two k

  static void Convert(const float* x, int64_t pairs, Input* out) {
    for (int64_t i = 0; i < pairs; i += 4) {
      const bfloat16x8_t v = RoundToBFloat16(vld1q_f32(x + 2 * i), vld1q_f32(x + 2 * i + 4));
      vst1q_u32(out + i, vreinterpretq_u32_bf16(v));
    }
  }

  // Two k of all columns of a panel.
  struct Weights {
    bfloat16x8_t v[4];

    explicit Weights(const uint16_t* w) : v{Load(w), Load(w + 8), Load(w + 16), Load(w + 24)} {}
    static bfloat16x8_t Load(const uint16_t* w) { return vreinterpretq_bf16_u16(vld1q_u16(w)); }
    void AddTo(Vec (&sums)[2], Input x) const {
      const bfloat16x8_t input = vreinterpretq_bf16_u32(vdupq_n_u32(x));
      sums[0] = {vbfdotq_f32(sums[0].lo, v[0], input), vbfdotq_f32(sums[0].hi, v[1], input)};
      sums[1] = {vbfdotq_f32(sums[1].lo, v[2], input), vbfdotq_f32(sums[1].hi, v[3], input)};
    }
  };
};

using Q8Codes = DotOf<Q8Bytes, vdotq_s32>;
using Q4Codes = DotOf<Nibbles, vdotq_s32>;

// KV formats in pairs, see kv_pages.inl. Inputs are rounded to bfloat16; codes of 8 bits are exact.
template <typename T, KvFormat kKvFormat>
struct BFloat16Pairs {
  using Storage = typename T::Storage;
  using Element = T;
  static constexpr KvFormat kFormat = kKvFormat;
  static constexpr int kParts = 1;
  static constexpr int64_t kStep = 2;
  struct Pairs {
    bfloat16x8_t lo, hi;
  };

  static void PackInputs(float* x, int64_t pairs) {
    for (int64_t i = 0; i < pairs; i += 4) {
      const bfloat16x8_t v = RoundToBFloat16(vld1q_f32(x + 2 * i), vld1q_f32(x + 2 * i + 4));
      vst1q_f32(x + i, vreinterpretq_f32_bf16(v));
    }
  }
  static bfloat16x8_t Input(const float* x, int64_t pair, int) {
    return vreinterpretq_bf16_f32(vdupq_n_f32(x[pair]));
  }
  template <int kTokens>
  static Pairs LoadPairs(const Storage* p, int64_t, int) {
    return {Masked<kTokens>(T::LoadBFloat16(p)), Masked<kTokens>(T::LoadBFloat16(p + 8))};
  }
  static Vec Add(Vec sum, bfloat16x8_t x, const Pairs& y) {
    return {vbfdotq_f32(sum.lo, x, y.lo), vbfdotq_f32(sum.hi, x, y.hi)};
  }

 private:
  template <int kTokens>
  static bfloat16x8_t Masked(bfloat16x8_t pairs) {
    if constexpr (kTokens == 3) return pairs;
    const uint32x4_t mask = vdupq_n_u32(kTokens == 1 ? 0x0000ffffu : 0xffff0000u);
    return vreinterpretq_bf16_u32(vandq_u32(vreinterpretq_u32_bf16(pairs), mask));
  }
};
struct BFloat16Elements : BFloat16 {
  static bfloat16x8_t LoadBFloat16(const uint16_t* p) {
    return vreinterpretq_bf16_u16(vld1q_u16(p));
  }
};
struct Int8Elements {
  using Storage = int8_t;
  static bfloat16x8_t LoadBFloat16(const int8_t* p) {
    const int16x8_t codes = vmovl_s8(vld1_s8(p));
    return RoundToBFloat16(vcvtq_f32_s32(vmovl_s16(vget_low_s16(codes))),
                           vcvtq_f32_s32(vmovl_high_s16(codes)));
  }
};
using KvBFloat16 = BFloat16Pairs<BFloat16Elements, KvFormat::kBFloat16>;
using KvInt8 = BFloat16Pairs<Int8Elements, KvFormat::kInt8>;

}  // namespace
}  // namespace mlc_native::kernels
