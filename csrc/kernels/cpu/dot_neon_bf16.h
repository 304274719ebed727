// Dot products of NEON with FEAT_DotProd and FEAT_BF16. What an ISA gives here is described in
// dot_avx2.h.
#pragma once

#include "kernels/cpu/dot_int_neon.h"

namespace mlc_native::kernels {
namespace {

// Inputs are rounded to bfloat16. bfdot adds up the two products before the sum, rounds to odd and
// takes subnormals for zeros (with FPCR.EBF clear, as it is by default).
struct BFloat16Dot {
  using Input = uint32_t;  // the inputs of two k

  static void Convert(const float* x, int64_t pairs, Input* out) {
    for (int64_t i = 0; i < pairs; i += 4) {
      const bfloat16x8_t lo = vcvtq_low_bf16_f32(vld1q_f32(x + 2 * i));
      const bfloat16x8_t both = vcvtq_high_bf16_f32(lo, vld1q_f32(x + 2 * i + 4));
      vst1q_u32(out + i, vreinterpretq_u32_bf16(both));
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

}  // namespace
}  // namespace mlc_native::kernels
