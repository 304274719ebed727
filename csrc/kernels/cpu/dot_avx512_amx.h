// Dot products of AVX-512 with BF16 and VNNI, and of AMX with bfloat16 and 8 bits (Sapphire Rapids
// and later). dot_avx2.h describes the interface. Quantized weights take tiles where there are
// several rows; sums of integers have the same bits either way. Those of bfloat16 and FP8 always
// take tiles, whose order of adding a vector could follow only at the speed of floats. By the count
// of cycles, a row alone waits for its weights longer than for the tiles; that is not measured.
#pragma once

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/bf16_avx512.h"
#include "kernels/cpu/dot_int_avx512_vnni.h"
// Requires BFloat16Vec of the file above.
#include "kernels/cpu/dot_bf16_pairs.inl"

namespace mlc_native::kernels {
namespace {

struct BFloat16Dot : PairDot {
  using Unit = PairTiles;
};

// Codes, with a unit that multiplies a group of several rows.
template <typename Codes>
struct UnitCodesOf : Codes {
  template <int kGroup>
  using Unit = CodeTiles<kGroup>;
};

using Q8Codes = UnitCodesOf<VnniQ8Codes>;
using Q4Codes = UnitCodesOf<VnniQ4Codes>;
using Q6Codes = UnitCodesOf<VnniQ6Codes>;
using Q2Codes = UnitCodesOf<VnniQ2Codes>;
template <const ByteTable& kTable>
using TableCodes = UnitCodesOf<VnniTableCodes<kTable>>;

}  // namespace
}  // namespace mlc_native::kernels
