// Pairs of bfloat16 for the levels of NEON with FEAT_BF16, which dot_bf16_pairs.inl multiplies.
#pragma once

#include "kernels/cpu/vec_neon.h"

namespace mlc_native::kernels {
namespace {

// bfdot adds the two products before it adds the sum, rounds to odd and treats subnormals as zeros
// (with FPCR.EBF clear, which is the default).
struct BFloat16Vec {
  bfloat16x8_t lo, hi;

  static BFloat16Vec Set(int32_t pair) {
    const bfloat16x8_t v = vreinterpretq_bf16_s32(vdupq_n_s32(pair));
    return {v, v};
  }
  static BFloat16Vec Load(const uint16_t* p) {
    return {vreinterpretq_bf16_u16(vld1q_u16(p)), vreinterpretq_bf16_u16(vld1q_u16(p + 8))};
  }
  static BFloat16Vec Load(const int8_t* p) {
    const int8x16_t codes = vld1q_s8(p);
    return {FromCodes(vmovl_s8(vget_low_s8(codes))), FromCodes(vmovl_high_s8(codes))};
  }
  static BFloat16Vec Load(const uint8_t* p) {
    const Vec first = Float8::LoadAs(p), second = Float8::LoadAs(p + 8);
    return {Narrow(first.lo, first.hi), Narrow(second.lo, second.hi)};
  }
  static BFloat16Vec Round(const float* x) {
    return {Narrow(vld1q_f32(x), vld1q_f32(x + 4)), Narrow(vld1q_f32(x + 8), vld1q_f32(x + 12))};
  }
  void Store(void* p) const {
    vst1q_u8(static_cast<uint8_t*>(p), vreinterpretq_u8_bf16(lo));
    vst1q_u8(static_cast<uint8_t*>(p) + 16, vreinterpretq_u8_bf16(hi));
  }

 private:
  static bfloat16x8_t Narrow(float32x4_t lo, float32x4_t hi) {
    return vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(lo), hi);
  }
  static bfloat16x8_t FromCodes(int16x8_t codes) {
    return Narrow(vcvtq_f32_s32(vmovl_s16(vget_low_s16(codes))),
                  vcvtq_f32_s32(vmovl_high_s16(codes)));
  }
};
inline bfloat16x8_t And(bfloat16x8_t a, bfloat16x8_t b) {
  return vreinterpretq_bf16_u8(vandq_u8(vreinterpretq_u8_bf16(a), vreinterpretq_u8_bf16(b)));
}
inline BFloat16Vec operator&(const BFloat16Vec& a, const BFloat16Vec& b) {
  return {And(a.lo, b.lo), And(a.hi, b.hi)};
}
inline Vec Dot(Vec sum, const BFloat16Vec& x, const BFloat16Vec& y) {
  return {vbfdotq_f32(sum.lo, x.lo, y.lo), vbfdotq_f32(sum.hi, x.hi, y.hi)};
}

}  // namespace
}  // namespace mlc_native::kernels
