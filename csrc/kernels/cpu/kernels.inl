// All kernels of one ISA. A file kernels_<isa>.cc includes its vec_<isa>.h, then this, and defines
// the accessor of its table. Everything is in unnamed namespaces and uses no std functions, so that
// no symbol compiled with ISA flags is shared with the rest of the program.

#pragma once

#include "kernels/cpu/attention.inl"
#include "kernels/cpu/linear.inl"
#include "kernels/cpu/rowwise.inl"

namespace mlc_native::kernels {
namespace {

constexpr CpuKernels kTable = {
    .name = kIsaName,
    .panel_width = kPanel,
    .tile_rows = kTileRows,
    .linear = LinearPanels,
    .rms_norm = RmsNormRows,
    .rope = RopeRows,
    .gated_activation = GatedActivationRows,
    .add = AddRows,
    .scale = ScaleRows,
    .soft_cap = SoftCapRows,
    .write_kv = WriteKvRows,
    .attention = AttendBlock,
};

}  // namespace
}  // namespace mlc_native::kernels
