// Dot products of AVX-512 with BF16 and VNNI. dot_avx2.h describes the interface.
#pragma once

#include "kernels/cpu/bf16_avx512.h"
#include "kernels/cpu/dot_int_avx512_vnni.h"
// Requires BFloat16Vec of the file above.
#include "kernels/cpu/dot_bf16_pairs.inl"

namespace mlc_native::kernels {
namespace {

using BFloat16Dot = PairDot;
using Q8Codes = VnniQ8Codes;
using Q4Codes = VnniQ4Codes;
using Q6Codes = VnniQ6Codes;
using Q2Codes = VnniQ2Codes;
template <const ByteTable& kTable>
using TableCodes = VnniTableCodes<kTable>;

}  // namespace
}  // namespace mlc_native::kernels
