// The gated delta rule, short convolutions, Mamba-1 and Mamba-2 of one ISA, compiled as
// rowwise_kernels.cc is.
#include MLC_NATIVE_ISA_HEADER
// After the ISA's header.
#include "kernels/cpu/delta_rule.inl"
#include "kernels/cpu/mamba.inl"
#include "kernels/cpu/selective_scan.inl"
#include "kernels/cpu/short_convolution.inl"

namespace mlc_native::kernels::MLC_NATIVE_ISA {

constinit const DeltaKernels kDelta = {.delta_rule = DeltaRows,
                                       .short_convolution = ConvolveChannels,
                                       .mamba_keys = MambaKeys,
                                       .mamba = MambaRows,
                                       .mamba_norm = MambaNorm,
                                       .scan_convolution = ScanConvolve,
                                       .scan_decays = ScanDecays,
                                       .scan = ScanRows};

}  // namespace mlc_native::kernels::MLC_NATIVE_ISA
