#include "kernels/cpu/dot_avx512_bf16.h"
// After its Vec and its dot products.
#include "kernels/cpu/kernels.inl"

namespace mlc_native::kernels {

const CpuKernels& Avx512Bf16Kernels() {
  static constexpr CpuKernels kTable = MakeTable("avx512_bf16");
  return kTable;
}

}  // namespace mlc_native::kernels
