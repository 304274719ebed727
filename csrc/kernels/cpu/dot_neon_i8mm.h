// Dot products of NEON with FEAT_DotProd, FEAT_BF16 and FEAT_I8MM (Neoverse V1 and N2, Apple M2 and
// later). dot_avx2.h describes the interface. A row alone takes sdot; several rows take smmla,
// which has twice its products: 2 rows by 8 k by 2 columns. The sums are integers, so the bits are
// the same. bfmmla is not used: it adds four products in an order of its own, which a row alone
// would have to follow.
#pragma once

#include "kernels/cpu/bf16_neon.h"
#include "kernels/cpu/dot_int_neon.h"
// Requires BFloat16Vec of the file above.
#include "kernels/cpu/dot_bf16_pairs.inl"

namespace mlc_native::kernels {
namespace {

constexpr int kQuantTileRows = kDotTileRows;
using BFloat16Dot = PairDot;

// Sums of two rows and a vector of columns: in v[i], those of the columns 2 i and 2 i + 1 for the
// first row, then for the second.
struct PairSums {
  int32x4_t v[4];

  static PairSums Zero() {
    const int32x4_t zero = vdupq_n_s32(0);
    return {{zero, zero, zero, zero}};
  }
  IntVec Row(int row) const {
    return row == 0 ? IntVec{Halves<vzip1q_s64>(0), Halves<vzip1q_s64>(2)}
                    : IntVec{Halves<vzip2q_s64>(0), Halves<vzip2q_s64>(2)};
  }

 private:
  template <int64x2_t (*kZip)(int64x2_t, int64x2_t)>
  int32x4_t Halves(int at) const {
    return vreinterpretq_s32_s64(
        kZip(vreinterpretq_s64_s32(v[at]), vreinterpretq_s64_s32(v[at + 1])));
  }
};

// Codes, with products of pairs of rows.
template <typename Codes>
struct PairDotOf : DotOf<Codes, vdotq_s32> {
  using Sums = PairSums;
  // 2 pairs of rows x 8 columns as integers, 4 rows x 16 columns as floats: 24 registers.
  static constexpr int kTileRows = 4;

  // Eight k of a vector of columns, two columns in each.
  struct Eight {
    int8x16_t columns[4];
    Eight(const Bytes& first, const Bytes& second)
        : columns{Zip<vzip1q_s32>(first.lo, second.lo), Zip<vzip2q_s32>(first.lo, second.lo),
                  Zip<vzip1q_s32>(first.hi, second.hi), Zip<vzip2q_s32>(first.hi, second.hi)} {}

   private:
    template <int32x4_t (*kZip)(int32x4_t, int32x4_t)>
    static int8x16_t Zip(int8x16_t a, int8x16_t b) {
      return vreinterpretq_s8_s32(kZip(vreinterpretq_s32_s8(a), vreinterpretq_s32_s8(b)));
    }
  };

  // Adds the products of eight inputs of two rows.
  static void AddPair(Sums& sums, const Eight& w, const int8_t* first, const int8_t* second) {
    const int8x16_t x = vcombine_s8(vld1_s8(first), vld1_s8(second));
    for (int i = 0; i < 4; ++i) sums.v[i] = vmmlaq_s32(sums.v[i], x, w.columns[i]);
  }
};

using Q8Codes = PairDotOf<Q8Bytes>;
using Q4Codes = PairDotOf<Nibbles>;
// The pairs of smmla would need more registers.
using Q6Codes = DotOf<Sixes, vdotq_s32>;
using Q2Codes = DotOf<Twos, vdotq_s32>;
template <const ByteTable& kTable>
using TableCodes = PairDotOf<TableNibbles<kTable>>;

}  // namespace
}  // namespace mlc_native::kernels
