#include "kernels/cpu/vec_avx512.h"
// After its Vec.
#include "kernels/cpu/kernels.inl"

namespace mlc_native::kernels {

const CpuKernels& Avx512Kernels() { return kTable; }

}  // namespace mlc_native::kernels
