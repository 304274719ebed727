// Dot products of AVX-512 with VNNI and without BF16. dot_avx2.h describes the interface.
#pragma once

#include "kernels/cpu/dot_int_avx512_vnni.h"
// Requires Vec of the file above.
#include "kernels/cpu/dot_bf16_as_float.inl"
