// Dot products of NEON with FEAT_DotProd and FEAT_BF16. dot_avx2.h describes the interface.
#pragma once

#include "kernels/cpu/bf16_neon.h"
#include "kernels/cpu/dot_int_neon.h"
// Requires BFloat16Vec of the file above.
#include "kernels/cpu/dot_bf16_pairs.inl"

namespace mlc_native::kernels {
namespace {

constexpr int kQuantTileRows = kDotTileRows;
using BFloat16Dot = PairDot;

using Q8Codes = DotOf<Q8Bytes, vdotq_s32>;
using Q4Codes = DotOf<Nibbles, vdotq_s32>;
using Q6Codes = DotOf<Sixes, vdotq_s32>;
using Q2Codes = DotOf<Twos, vdotq_s32>;
template <const ByteTable& kTable>
using TableCodes = DotOf<TableNibbles<kTable>, vdotq_s32>;

}  // namespace
}  // namespace mlc_native::kernels
