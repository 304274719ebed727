// The attention kernels of one ISA. csrc/cmake/MlcNativeKernels.cmake compiles this file for each,
// with MLC_NATIVE_ISA, its name, and MLC_NATIVE_ISA_HEADER, which brings its Vec and its dot
// products. All but the table is in unnamed namespaces and uses no std functions, so that no symbol
// compiled with an ISA's flags is shared with the rest of the program.
#include MLC_NATIVE_ISA_HEADER
// After the ISA's header.
#include "kernels/cpu/attention.inl"
#include "kernels/cpu/key_scores.inl"
#include "kernels/cpu/kv_pages.inl"

namespace mlc_native::kernels::MLC_NATIVE_ISA {

constinit const AttentionKernels kAttention = {
    .write_kv = WriteKvRows,
    .attention = AttendBlock,
    .attention_segment = AttendSegment,
    .attention_fold = FoldSegments,
    .key_scores = ScoreKeys,
};

}  // namespace mlc_native::kernels::MLC_NATIVE_ISA
