// Dot products of AVX-512 with VNNI and without BF16. dot_avx2.h describes the interface.
#pragma once

#include "kernels/cpu/dot_int_avx512_vnni.h"
// Requires Vec of the file above.
#include "kernels/cpu/dot_bf16_as_float.inl"

namespace mlc_native::kernels {
namespace {

using BFloat16Dot = FloatDot;
using Q8Codes = VnniQ8Codes;
using Q4Codes = VnniQ4Codes;
using Q6Codes = VnniQ6Codes;
using Q2Codes = VnniQ2Codes;
template <const ByteTable& kTable>
using TableCodes = VnniTableCodes<kTable>;

}  // namespace
}  // namespace mlc_native::kernels
