// The gated delta rule of one ISA, compiled as rowwise_kernels.cc is.
#include MLC_NATIVE_ISA_HEADER
// After the ISA's header.
#include "kernels/cpu/delta_rule.inl"

namespace mlc_native::kernels::MLC_NATIVE_ISA {

constinit const DeltaKernels kDelta = {.delta_rule = DeltaRows};

}  // namespace mlc_native::kernels::MLC_NATIVE_ISA
