#include "kernels/cpu/vec_portable.h"
// After its Vec.
#include "kernels/cpu/kernels.inl"

namespace mlc_native::kernels {

const CpuKernels& PortableKernels() { return kTable; }

}  // namespace mlc_native::kernels
