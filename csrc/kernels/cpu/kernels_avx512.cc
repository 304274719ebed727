#include "kernels/cpu/dot_avx512.h"
// After its Vec and its dot products.
#include "kernels/cpu/kernels.inl"

namespace mlc_native::kernels {

const CpuKernels& Avx512Kernels() {
  static constexpr CpuKernels kTable = MakeTable("avx512");
  return kTable;
}

}  // namespace mlc_native::kernels
