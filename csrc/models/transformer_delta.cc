// Layers with states on the CPU's kernels: which ones the rows of a batch read and write, the gated
// delta rule, short convolutions, Mamba-1 and Mamba-2.
#include "kernels/mamba.h"
#include "kernels/short_convolution.h"
#include "models/transformer_ops.h"
#include "support/check.h"

namespace mlc_native {

void Transformer::CheckRecurrentSlots(const ForwardBatch& batch) const {
  const int64_t num_slots = recurrent_.num_slots();
  for (const SequenceSlice& s : batch.sequences) {
    MLC_CHECK((s.position == 0 || (s.recurrent_slot >= 0 && s.recurrent_slot < num_slots)) &&
              !s.recurrent_writes.empty())
        << "slot " << s.recurrent_slot << " of " << num_slots << " at position " << s.position;
    for (const RecurrentWrite& write : s.recurrent_writes) {
      MLC_CHECK(write.slot >= 0 && write.slot < num_slots)
          << "slot " << write.slot << " of " << num_slots;
    }
  }
}

void Transformer::PlaceStates(const ForwardBatch& batch, size_t layer) {
  delta_writes_.clear();
  for (const SequenceSlice& s : batch.sequences) {
    for (const RecurrentWrite& write : s.recurrent_writes) {
      delta_writes_.push_back(
          {.num_rows = write.num_tokens, .state = recurrent_.state(write.slot, layer)});
    }
  }
  size_t at = 0;
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const SequenceSlice& s = batch.sequences[i];
    delta_sequences_[i] = {
        .row_begin = s.first_row,
        .num_rows = s.num_tokens,
        .state = s.position == 0 ? nullptr : recurrent_.state(s.recurrent_slot, layer),
        .writes = delta_writes_.data() + at,
        .num_writes = std::ssize(s.recurrent_writes)};
    at += s.recurrent_writes.size();
  }
}

void Transformer::Ops::RunShortConvolution(size_t layer) {
  const CpuDecoderWeights::Layer& weights = model_.weights_.layers[layer];
  model_.PlaceStates(batch_, layer);
  kernels::ShortConvolution(model_.cpu_, {.channels = config_.convolution->channels,
                                          .width = config_.convolution->width,
                                          .inputs = buffers_.delta_inputs.data,
                                          .ld_inputs = buffers_.delta_inputs.width,
                                          .weights = weights.vector(VectorRole::kConvolution),
                                          .out = buffers_.delta_output.data,
                                          .ldo = buffers_.delta_output.width,
                                          .sequences = model_.delta_sequences_.data(),
                                          .num_sequences = std::ssize(batch_.sequences)});
}

void Transformer::Ops::RunMamba(size_t layer) {
  const CpuDecoderWeights::Layer& weights = model_.weights_.layers[layer];
  model_.PlaceStates(batch_, layer);
  kernels::Mamba(model_.cpu_, {.shape = RecurrentStorage::ShapeOf(*config_.mamba),
                               .inputs = buffers_.delta_inputs.data,
                               .ld_inputs = buffers_.delta_inputs.width,
                               .convolution = weights.vector(VectorRole::kConvolution),
                               .conv_bias = weights.vector(VectorRole::kConvolutionBias),
                               .decay = weights.vector(VectorRole::kDecay),
                               .step_bias = weights.vector(VectorRole::kDecayBias),
                               .shortest_step = config_.mamba->shortest_step,
                               .longest_step = config_.mamba->longest_step,
                               .skip = weights.vector(VectorRole::kSkip),
                               .norm = weights.vector(VectorRole::kDeltaNorm),
                               .norm_eps = config_.norm_eps,
                               .keys = buffers_.delta_gates.data,
                               .out = buffers_.delta_output.data,
                               .ldo = buffers_.delta_output.width,
                               .sequences = model_.delta_sequences_.data(),
                               .num_sequences = std::ssize(batch_.sequences),
                               .workspace = buffers_.delta_workspace});
}

kernels::ScanArgs Transformer::Ops::ScanArgsOf(size_t layer) const {
  const CpuDecoderWeights::Layer& weights = model_.weights_.layers[layer];
  return {.shape = RecurrentStorage::ShapeOf(*config_.scan),
          .inputs = buffers_.delta_inputs.data,
          .ld_inputs = buffers_.delta_inputs.width,
          .convolution = weights.vector(VectorRole::kConvolution),
          .conv_bias = weights.vector(VectorRole::kConvolutionBias),
          .convolved = buffers_.delta_out_gates.data,
          .ld_convolved = buffers_.delta_out_gates.width,
          .steps = buffers_.delta_decays.data,
          .ld_steps = buffers_.delta_decays.width,
          .keys = buffers_.delta_gates.data + config_.scan->rank,
          .ld_keys = buffers_.delta_gates.width,
          .decay = weights.vector(VectorRole::kDecay),
          .step_bias = weights.vector(VectorRole::kDecayBias),
          .skip = weights.vector(VectorRole::kSkip),
          .out = buffers_.delta_output.data,
          .ldo = buffers_.delta_output.width,
          .sequences = model_.delta_sequences_.data(),
          .num_sequences = std::ssize(batch_.sequences),
          .workspace = buffers_.delta_workspace};
}

void Transformer::Ops::ConvolveScan(size_t layer) {
  model_.PlaceStates(batch_, layer);
  kernels::ScanConvolution(model_.cpu_, ScanArgsOf(layer));
}

void Transformer::Ops::AddScanNorms(size_t layer) {
  if (!config_.scan->has_norms) return;
  const ScanConfig& scan = *config_.scan;
  const float* weight = model_.weights_.layers[layer].vector(VectorRole::kScanNorm);
  Activations x = buffers_.delta_gates;
  for (const int64_t dim : {scan.rank, scan.state_dim, scan.state_dim}) {
    remembered_.Add(kernels::NormalizeArgs{.x = x.data,
                                           .ldx = x.width,
                                           .y = x.data,
                                           .ldy = x.width,
                                           .weight = weight,
                                           .eps = scan.norm_eps,
                                           .m = num_rows_,
                                           .dim = dim});
    x.data += dim;
    weight += dim;
  }
}

void Transformer::Ops::RunScan(size_t layer) {
  kernels::SelectiveScan(model_.cpu_, ScanArgsOf(layer));
}

void Transformer::Ops::RunDeltaRule(size_t layer) {
  const CpuDecoderWeights::Layer& weights = model_.weights_.layers[layer];
  model_.PlaceStates(batch_, layer);
  kernels::DeltaRule(model_.cpu_, {.shape = RecurrentStorage::ShapeOf(*config_.delta),
                                   .inputs = buffers_.delta_inputs.data,
                                   .ld_inputs = buffers_.delta_inputs.width,
                                   .out_gates = buffers_.delta_out_gates.data,
                                   .ld_out_gates = buffers_.delta_out_gates.width,
                                   .sigmoid_out_gates = config_.delta->decays_channels(),
                                   .gates = buffers_.delta_gates.data,
                                   .ld_gates = buffers_.delta_gates.width,
                                   .channel_decays = buffers_.delta_decays.data,
                                   .ld_channel_decays = buffers_.delta_decays.width,
                                   .convolution = weights.vector(VectorRole::kConvolution),
                                   .decay = weights.vector(VectorRole::kDecay),
                                   .decay_bias = weights.vector(VectorRole::kDecayBias),
                                   .beta_scale = config_.delta->beta_scale,
                                   .norm = weights.vector(VectorRole::kDeltaNorm),
                                   .norm_eps = config_.delta->norm_eps,
                                   .out = buffers_.delta_output.data,
                                   .ldo = buffers_.delta_output.width,
                                   .sequences = model_.delta_sequences_.data(),
                                   .num_sequences = std::ssize(batch_.sequences),
                                   .workspace = buffers_.delta_workspace});
}

}  // namespace mlc_native
