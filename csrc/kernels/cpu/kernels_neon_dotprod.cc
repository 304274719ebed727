#include "kernels/cpu/dot_neon_dotprod.h"
// After its Vec and its dot products.
#include "kernels/cpu/kernels.inl"

namespace mlc_native::kernels {

const CpuKernels& NeonDotprodKernels() {
  static constexpr CpuKernels kTable = MakeTable("neon_dotprod");
  return kTable;
}

}  // namespace mlc_native::kernels
