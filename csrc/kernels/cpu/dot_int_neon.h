// Integer dot products that the NEON levels share.
#pragma once

#include "kernels/cpu/dot_input.h"
#include "kernels/cpu/vec_neon.h"

namespace mlc_native::kernels {
namespace {

// kQuantTileRows of the levels that add up one row at a time: 3 rows x 2 vectors, as integers and
// as floats: 24 registers.
constexpr int kDotTileRows = 3;

struct IntVec {
  int32x4_t lo, hi;

  static IntVec Set(int32_t x) { return {vdupq_n_s32(x), vdupq_n_s32(x)}; }
};
inline IntVec operator+(IntVec a, IntVec b) {
  return {vaddq_s32(a.lo, b.lo), vaddq_s32(a.hi, b.hi)};
}
inline Vec ToFloat(IntVec a) { return {vcvtq_f32_s32(a.lo), vcvtq_f32_s32(a.hi)}; }
inline Vec BitsAsFloat(IntVec a) {
  return {vreinterpretq_f32_s32(a.lo), vreinterpretq_f32_s32(a.hi)};
}

struct Bytes {
  int8x16_t lo, hi;
};

// Both factors are signed, so the codes of q8 are made signed.
struct Q8Bytes {
  static constexpr int kQuads = 1;
  static constexpr int kOffset = 0;
  using Quad = Bytes;
  static int8x16_t Signed(const uint8_t* p) {
    return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(p), vdupq_n_u8(128)));
  }
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) { w[0] = {Signed(p), Signed(p + 16)}; }
};

struct Nibbles {
  static constexpr int kQuads = 2;
  static constexpr int kOffset = 8;
  using Quad = Bytes;
  static int8x16_t Low(uint8x16_t codes) {
    return vreinterpretq_s8_u8(vandq_u8(codes, vdupq_n_u8(15)));
  }
  static int8x16_t High(uint8x16_t codes) { return vreinterpretq_s8_u8(vshrq_n_u8(codes, 4)); }
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    const uint8x16_t lo = vld1q_u8(p), hi = vld1q_u8(p + 16);
    w[0] = {Low(lo), Low(hi)};
    w[1] = {High(lo), High(hi)};
  }
};

struct Twos {
  static constexpr int kQuads = 4;
  static constexpr int kOffset = 2;
  using Quad = Bytes;
  static int8x16_t Low(uint8x16_t bytes) {
    return vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(3)));
  }
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    const uint8x16_t lo = vld1q_u8(p), hi = vld1q_u8(p + 16);
    w[0] = {Low(lo), Low(hi)};
    w[1] = {Low(vshrq_n_u8(lo, 2)), Low(vshrq_n_u8(hi, 2))};
    w[2] = {Low(vshrq_n_u8(lo, 4)), Low(vshrq_n_u8(hi, 4))};
    w[3] = {Low(vshrq_n_u8(lo, 6)), Low(vshrq_n_u8(hi, 6))};
  }
};

// The last code of a column's bytes is in the two high bits of the three chunks.
struct Sixes {
  static constexpr int kChunks = kQ6Chunks;
  static constexpr int kQuads = kChunks + 1;
  static constexpr int kOffset = 32;
  using Quad = Bytes;
  static void LoadHalf(const uint8_t* p, int8x16_t* const (&out)[kQuads]) {
    constexpr int kNext = kNextChunk<Vec::kLanes>;
    const uint8x16_t a = vld1q_u8(p), b = vld1q_u8(p + kNext), c = vld1q_u8(p + 2 * kNext);
    const uint8x16_t mask = vdupq_n_u8(63);
    *out[0] = vreinterpretq_s8_u8(vandq_u8(a, mask));
    *out[1] = vreinterpretq_s8_u8(vandq_u8(b, mask));
    *out[2] = vreinterpretq_s8_u8(vandq_u8(c, mask));
    const uint8x16_t middle = vandq_u8(vshrq_n_u8(b, 4), vdupq_n_u8(0x0c));
    const uint8x16_t high = vandq_u8(vshrq_n_u8(c, 2), vdupq_n_u8(0x30));
    *out[3] = vreinterpretq_s8_u8(vorrq_u8(vorrq_u8(vshrq_n_u8(a, 6), middle), high));
  }
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    LoadHalf(p, {&w[0].lo, &w[1].lo, &w[2].lo, &w[3].lo});
    LoadHalf(p + 16, {&w[0].hi, &w[1].hi, &w[2].hi, &w[3].hi});
  }
};

// Indices of a table as codes, which are signed, so without an offset.
template <const ByteTable& kTable>
struct TableNibbles : Nibbles {
  static constexpr int kOffset = 0;
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    Nibbles::Load(p, w);
    const int8x16_t table = vld1q_s8(kTable.values);
    for (Quad& quad : w) {
      quad.lo = vqtbl1q_s8(table, vreinterpretq_u8_s8(quad.lo));
      quad.hi = vqtbl1q_s8(table, vreinterpretq_u8_s8(quad.hi));
    }
  }
};

// Codes, with the level's instruction for adding 4 products to each of 4 sums.
template <typename Codes, int32x4_t (*kAddQuads)(int32x4_t sum, int8x16_t w, int8x16_t x)>
struct DotOf : Codes {
  static IntVec Dot(IntVec sum, const Bytes& w, IntVec x) {
    return {kAddQuads(sum.lo, w.lo, vreinterpretq_s8_s32(x.lo)),
            kAddQuads(sum.hi, w.hi, vreinterpretq_s8_s32(x.hi))};
  }
};

template <typename Scale, int kGroup>
inline void QuantizeInputs(const float* x, int offset, QuantInput<kGroup>* out) {
  // The bits of absolute values are ordered like integers, NaN last.
  uint32x4_t bits = vdupq_n_u32(0);
  for (int i = 0; i < kGroup; i += 4) {
    bits = vmaxq_u32(bits, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + i))));
  }
  const Scale scale(__builtin_bit_cast(float, vmaxvq_u32(bits)));
  int32x4_t sum = vdupq_n_s32(0);
  for (int i = 0; i < kGroup; i += 8) {
    const int32x4_t lo = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i), scale.inverse));
    const int32x4_t hi = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i + 4), scale.inverse));
    vst1_s8(out->codes + i, vmovn_s16(vcombine_s16(vmovn_s32(lo), vmovn_s32(hi))));
    sum = vaddq_s32(sum, vaddq_s32(lo, hi));
  }
  out->start = scale.Start() - offset * vaddvq_s32(sum);
  out->factor = scale.Factor();
}

}  // namespace
}  // namespace mlc_native::kernels
