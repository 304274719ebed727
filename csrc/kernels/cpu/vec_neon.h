// Vec for NEON (AArch64): 8 floats in two registers. A panel of 4 registers needs fewer broadcasts
// per product than one of 2 (5 rows: 4 loads and 5 broadcasts for 20 multiply-adds, against 2 and
// 10), and a single row has 4 independent sums to hide the latency. vec_avx2.h describes the
// interface and the unnamed namespace.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace mlc_native::kernels {
namespace {

// 5 rows x 2 vectors = 20 of the 32 registers: 8 hold two k of bfloat16 weights.
constexpr int kTileRows = 5;

struct Vec {
  static constexpr int kLanes = 8;
  float32x4_t lo, hi;

  static Vec Zero() { return Set(0.0f); }
  static Vec Set(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
  static Vec Load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
  void Store(float* p) const {
    vst1q_f32(p, lo);
    vst1q_f32(p + 4, hi);
  }
};

inline Vec operator+(Vec a, Vec b) { return {vaddq_f32(a.lo, b.lo), vaddq_f32(a.hi, b.hi)}; }
inline Vec operator-(Vec a, Vec b) { return {vsubq_f32(a.lo, b.lo), vsubq_f32(a.hi, b.hi)}; }
inline Vec operator*(Vec a, Vec b) { return {vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi)}; }
inline Vec operator/(Vec a, Vec b) { return {vdivq_f32(a.lo, b.lo), vdivq_f32(a.hi, b.hi)}; }
inline Vec Fma(Vec a, Vec b, Vec c) {
  return {vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)};
}
// a < b ? yes : no for each lane. NaN compares false.
inline Vec SelectLess(Vec a, Vec b, Vec yes, Vec no) {
  return {vbslq_f32(vcltq_f32(a.lo, b.lo), yes.lo, no.lo),
          vbslq_f32(vcltq_f32(a.hi, b.hi), yes.hi, no.hi)};
}
// Does not use fmax and fmin, which return NaN if either operand is NaN.
inline Vec Max(Vec a, Vec b) { return SelectLess(b, a, a, b); }  // b if one is NaN
inline Vec Min(Vec a, Vec b) { return SelectLess(a, b, a, b); }  // b if one is NaN
inline Vec Round(Vec a) { return {vrndnq_f32(a.lo), vrndnq_f32(a.hi)}; }
inline Vec Abs(Vec a) { return {vabsq_f32(a.lo), vabsq_f32(a.hi)}; }
inline Vec CopySign(Vec magnitude, Vec sign) {
  const uint32x4_t bit = vdupq_n_u32(0x80000000u);
  return {vbslq_f32(bit, sign.lo, magnitude.lo), vbslq_f32(bit, sign.hi, magnitude.hi)};
}
// 2^n for integral n in [-126, 127], 0 for -127.
inline float32x4_t Exp2Int(float32x4_t n) {
  const int32x4_t biased = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
  return vreinterpretq_f32_s32(vshlq_n_s32(biased, 23));
}
inline Vec Exp2Int(Vec n) { return {Exp2Int(n.lo), Exp2Int(n.hi)}; }
inline void Prefetch(const void* p) { __builtin_prefetch(p); }
inline void PrefetchL2(const void* p) { __builtin_prefetch(p, 0, 2); }

struct Float32 {
  using Storage = float;
  static Vec LoadAs(const float* p) { return Vec::Load(p); }
  static void StoreAs(float* p, Vec x) { x.Store(p); }
};

struct BFloat16 {
  using Storage = uint16_t;
  static Vec LoadAs(const uint16_t* p) {
    const uint16x8_t bits = vld1q_u16(p);
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bits), 16)),
            vreinterpretq_f32_u32(vshll_high_n_u16(bits, 16))};
  }
  static Vec LoadEven(const uint16_t* p) { return {Even(p), Even(p + 8)}; }
  static Vec LoadOdd(const uint16_t* p) { return {Odd(p), Odd(p + 8)}; }
  static void StoreAs(uint16_t* p, Vec x) {
    vst1q_u16(p, vcombine_u16(Narrow(x.lo), Narrow(x.hi)));
  }

 private:
  static float32x4_t Even(const uint16_t* p) {
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u16(vld1q_u16(p)), 16));
  }
  static float32x4_t Odd(const uint16_t* p) {
    const uint32x4_t high = vdupq_n_u32(0xffff0000u);
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u16(vld1q_u16(p)), high));
  }
  static uint16x4_t Narrow(float32x4_t x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, quiet), 16);
  }
};

// E4M3, except its NaN. The bits in the places of float32's are 2^-120 of the value.
struct Float8 {
  static Vec LoadAs(const uint8_t* p) {
    const int16x8_t codes = vmovl_s8(vreinterpret_s8_u8(vld1_u8(p)));
    return {FromPlaces(vshlq_n_s32(vmovl_s16(vget_low_s16(codes)), 20)),
            FromPlaces(vshlq_n_s32(vmovl_high_s16(codes), 20))};
  }
  static Vec LoadEven(const uint8_t* p) {
    const int16x8_t pairs = vreinterpretq_s16_u8(vld1q_u8(p));
    return {Even(vmovl_s16(vget_low_s16(pairs))), Even(vmovl_high_s16(pairs))};
  }
  static Vec LoadOdd(const uint8_t* p) {
    const int16x8_t pairs = vreinterpretq_s16_u8(vld1q_u8(p));
    return {FromPlaces(vshlq_n_s32(vmovl_s16(vget_low_s16(pairs)), 12)),
            FromPlaces(vshlq_n_s32(vmovl_high_s16(pairs), 12))};
  }

 private:
  static float32x4_t Even(int32x4_t pairs) {
    return FromPlaces(vshrq_n_s32(vshlq_n_s32(pairs, 24), 4));
  }
  static float32x4_t FromPlaces(int32x4_t bits) {
    const uint32x4_t places = vandq_u32(vreinterpretq_u32_s32(bits), vdupq_n_u32(0x87f00000));
    return vmulq_n_f32(vreinterpretq_f32_u32(places), 0x1p120f);
  }
};

struct Float16 {
  using Storage = uint16_t;
  static Vec LoadAs(const uint16_t* p) {
    const float16x8_t bits = vreinterpretq_f16_u16(vld1q_u16(p));
    return {vcvt_f32_f16(vget_low_f16(bits)), vcvt_high_f32_f16(bits)};
  }
  static void StoreAs(uint16_t* p, Vec x) {
    vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.lo), x.hi)));
  }
};

struct Int8 {  // codes of KV pages, only in pairs
  using Storage = int8_t;
  static Vec LoadEven(const int8_t* p) {
    const int16x8_t words = vreinterpretq_s16_s8(vld1q_s8(p));
    return Floats(vshrq_n_s16(vshlq_n_s16(words, 8), 8));
  }
  static Vec LoadOdd(const int8_t* p) {
    return Floats(vshrq_n_s16(vreinterpretq_s16_s8(vld1q_s8(p)), 8));
  }

 private:
  static Vec Floats(int16x8_t words) {
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))), vcvtq_f32_s32(vmovl_high_s16(words))};
  }
};

}  // namespace
}  // namespace mlc_native::kernels
