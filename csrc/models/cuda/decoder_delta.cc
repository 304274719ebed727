// Layers with linear attention: what they read and write, as launches of the CUDA kernels.
#include "kernels/cuda/delta_rule.h"
#include "models/cuda/decoder_ops.h"
#include "support/check.h"

namespace mlc_native {

using namespace kernels::cuda;  // NOLINT: the vocabulary of this file

void CudaDecoder::Ops::LaunchDeltaGates(const Linear& gates) const {
  RouterLogits({.dtype = weights_.dtype,
                .weight = static_cast<const float*>(gates.matrix.data),
                .n = gates.matrix.n,
                .k = gates.matrix.k,
                .x = input_,
                .ldx = gates.matrix.k,
                .m = num_rows_,
                .logits = buffers_.delta_gates,
                .ld = gates.matrix.n},
               stream_);
}

void CudaDecoder::Ops::RunDeltaRule(size_t layer) {
  const auto& w = weights_.layers[layer];
  const auto vector = [&](VectorRole role) { return static_cast<const float*>(w.vector(role)); };
  const CudaRecurrentStates& states = decoder_.recurrent_;
  MLC_CHECK(states.data != nullptr) << "no slots for states";
  DeltaRule({.dtype = weights_.dtype,
             .shape = DeltaShapeOf(*config_.delta),
             .inputs = buffers_.delta_inputs,
             .gates = buffers_.delta_gates,
             .convolution = vector(VectorRole::kConvolution),
             .decay = vector(VectorRole::kDecay),
             .decay_bias = vector(VectorRole::kDecayBias),
             .norm = vector(VectorRole::kDeltaNorm),
             .norm_eps = config_.norm_eps,
             .out = buffers_.attention,
             .m = num_rows_,
             .slices = batch_.delta_slices,
             .num_slices = num_rows_,
             .slice_of_row = batch_.slice_of_row,
             .writes = batch_.delta_writes,
             .states = states.data + states.layer_floats[layer],
             .slot_floats = states.slot_floats,
             .workspace = buffers_.delta},
            stream_);
}

void CudaDecoder::Ops::GateAttention(size_t layer) const {
  const LayerConfig& sizes = config_.layers[layer];
  Gate({.dtype = weights_.dtype,
        .gate = buffers_.qkv,
        .ld_gate = QkvRow(config_, sizes),
        .x = buffers_.attention,
        .ldx = AttentionSize(config_, sizes),
        .m = num_rows_,
        .n = config_.q_size(sizes)},
       stream_);
}

}  // namespace mlc_native
