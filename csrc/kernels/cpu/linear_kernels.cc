// The linear kernels of one ISA. csrc/cmake/MlcNativeKernels.cmake compiles this file for each,
// with MLC_NATIVE_ISA, its name, and MLC_NATIVE_ISA_HEADER, which brings its Vec and its dot
// products. All but the table is in unnamed namespaces and uses no std functions, so that no symbol
// compiled with an ISA's flags is shared with the rest of the program.
#include MLC_NATIVE_ISA_HEADER
// After the ISA's header.
#include "kernels/cpu/linear.inl"

namespace mlc_native::kernels::MLC_NATIVE_ISA {

extern const LinearKernels kLinear;  // also an ISA's of the tests, which table.h does not declare
constinit const LinearKernels kLinear = {
    .panel_width = kPanel,
    .linear_input = LinearInputRows,
    .linear = LinearPanels,
};

}  // namespace mlc_native::kernels::MLC_NATIVE_ISA
