#include "kernels/cpu/vec_avx2.h"
// After its Vec.
#include "kernels/cpu/kernels.inl"

namespace mlc_native::kernels {

const CpuKernels& Avx2Kernels() { return kTable; }

}  // namespace mlc_native::kernels
