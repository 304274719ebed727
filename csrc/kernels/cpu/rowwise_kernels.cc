// The row-wise kernels of one ISA. csrc/cmake/MlcNativeKernels.cmake compiles this file for each,
// with MLC_NATIVE_ISA, its name, and MLC_NATIVE_ISA_HEADER, which brings its Vec and its dot
// products. All but the table is in unnamed namespaces and uses no std functions, so that no symbol
// compiled with an ISA's flags is shared with the rest of the program.
#include MLC_NATIVE_ISA_HEADER
// After the ISA's header.
#include "kernels/cpu/compression.inl"
#include "kernels/cpu/residual_streams.inl"

namespace mlc_native::kernels::MLC_NATIVE_ISA {

constinit const RowKernels kRows = {
    .normalize = NormalizeRows,
    .rope = RopeRows,
    .scale = ScaleRows,
    .add = AddRows,
    .activate = ActivateRows,
    .gate = GateRows,
    .soft_cap = SoftCapRows,
    .mix = MixRows,
    .spread = SpreadRows,
    .cut = CutRows,
    .streams = StreamRows,
    .compress = CompressWindows,
};

}  // namespace mlc_native::kernels::MLC_NATIVE_ISA
