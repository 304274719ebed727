#include "kernels/cpu/dot_portable.h"
// After its Vec and its dot products.
#include "kernels/cpu/kernels.inl"

namespace mlc_native::kernels {

const CpuKernels& PortableKernels() {
  static constexpr CpuKernels kTable = MakeTable("portable");
  return kTable;
}

}  // namespace mlc_native::kernels
