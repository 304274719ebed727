// Dot products of NEON with FEAT_DotProd. What an ISA gives here is described in dot_avx2.h.
#pragma once

#include "kernels/cpu/dot_int_neon.h"
// After its Vec.
#include "kernels/cpu/dot_bf16_as_float.inl"

namespace mlc_native::kernels {
namespace {

using Q8Codes = DotOf<Q8Bytes, vdotq_s32>;
using Q4Codes = DotOf<Nibbles, vdotq_s32>;

}  // namespace
}  // namespace mlc_native::kernels
