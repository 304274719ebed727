#include "kernels/cpu/dot_neon.h"
// After its Vec and its dot products.
#include "kernels/cpu/kernels.inl"

namespace mlc_native::kernels {

const CpuKernels& NeonKernels() {
  static constexpr CpuKernels kTable = MakeTable("neon");
  return kTable;
}

}  // namespace mlc_native::kernels
