#include "kernels/cpu/dot_neon_bf16.h"
// After its Vec and its dot products.
#include "kernels/cpu/kernels.inl"

namespace mlc_native::kernels {

const CpuKernels& NeonBf16Kernels() {
  static constexpr CpuKernels kTable = MakeTable("neon_bf16");
  return kTable;
}

}  // namespace mlc_native::kernels
