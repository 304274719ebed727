// Dot products of NEON without the extensions for them. dot_avx2.h describes the interface.
#pragma once

#include "kernels/cpu/dot_int_neon.h"
// Requires Vec of the file above.
#include "kernels/cpu/dot_bf16_as_float.inl"

namespace mlc_native::kernels {
namespace {

// Two products fit into 16 bits: codes are in [-128, 127] and inputs in [-127, 127].
inline int32x4_t AddQuads(int32x4_t sum, int8x16_t w, int8x16_t x) {
  const int16x8_t lo = vmull_s8(vget_low_s8(w), vget_low_s8(x));
  const int16x8_t hi = vmull_high_s8(w, x);
  return vpadalq_s16(sum, vpaddq_s16(lo, hi));
}

constexpr int kQuantTileRows = kDotTileRows;
using BFloat16Dot = FloatDot;

using Q8Codes = DotOf<Q8Bytes, AddQuads>;
using Q4Codes = DotOf<Nibbles, AddQuads>;
using Q6Codes = DotOf<Sixes, AddQuads>;
using Q2Codes = DotOf<Twos, AddQuads>;
template <const ByteTable& kTable>
using TableCodes = DotOf<TableNibbles<kTable>, AddQuads>;

}  // namespace
}  // namespace mlc_native::kernels
