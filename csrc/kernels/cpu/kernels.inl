// All kernels of one ISA. A file kernels_<isa>.cc includes its dot_<isa>.h, which brings its Vec,
// then this, and defines the accessor of its table. Everything is in unnamed namespaces and uses no
// std functions, so that no symbol compiled with ISA flags is shared with the rest of the program.

#pragma once

#include "kernels/cpu/attention.inl"
#include "kernels/cpu/kv_pages.inl"
#include "kernels/cpu/linear.inl"
#include "kernels/cpu/rowwise.inl"

namespace mlc_native::kernels {
namespace {

constexpr CpuKernels MakeTable(const char* name) {
  return {
      .name = name,
      .panel_width = kPanel,
      .linear_input = LinearInputRows,
      .linear = LinearPanels,
      .rms_norm = RmsNormRows,
      .rope = RopeRows,
      .gated_activation = GatedActivationRows,
      .soft_cap = SoftCapRows,
      .write_kv = WriteKvRows,
      .attention = AttendBlock,
      .attention_segment = AttendSegment,
      .attention_fold = FoldSegments,
  };
}

}  // namespace
}  // namespace mlc_native::kernels
