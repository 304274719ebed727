#include "kernels/cpu/dot_avx2.h"
// After its Vec and its dot products.
#include "kernels/cpu/kernels.inl"

namespace mlc_native::kernels {

const CpuKernels& Avx2Kernels() {
  static constexpr CpuKernels kTable = MakeTable("avx2");
  return kTable;
}

}  // namespace mlc_native::kernels
