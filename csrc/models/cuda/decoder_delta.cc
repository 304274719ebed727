// Layers with states: what they read and write, as launches of the CUDA kernels.
#include "kernels/cuda/delta_rule.h"
#include "kernels/cuda/mamba.h"
#include "kernels/cuda/selective_scan.h"
#include "kernels/cuda/short_convolution.h"
#include "models/cuda/decoder_ops.h"
#include "support/check.h"

namespace mlc_native {

using namespace kernels::cuda;  // NOLINT: the vocabulary of this file

GemvArgs CudaDecoder::Ops::OfDeltaRank(const Linear& linear, LinearRole role) const {
  const DeltaConfig& delta = *config_.delta;
  const bool is_decays = role == LinearRole::kDeltaDecays;
  const int64_t column = delta.conv_size() + (is_decays ? 0 : delta.gate_rank);
  GemvArgs args = LinearArgs(linear, Advance(buffers_.delta_inputs, column, weights_.dtype),
                             buffers_.delta_out_gates);
  args.ldx = StateInputsRow(config_);
  if (is_decays) {
    args.y = buffers_.delta_decays;
    args.float_output = true;
  }
  return args;
}

float* CudaDecoder::Ops::StatesOf(size_t layer) const {
  const CudaRecurrentStates& states = decoder_.recurrent_;
  MLC_CHECK(states.data != nullptr) << "no slots for states";
  return states.data + states.layer_floats[layer];
}

void CudaDecoder::Ops::RunShortConvolution(size_t layer) {
  const void* const weights = weights_.layers[layer].vector(VectorRole::kConvolution);
  ShortConvolution({.dtype = weights_.dtype,
                    .channels = config_.convolution->channels,
                    .width = config_.convolution->width,
                    .inputs = buffers_.delta_inputs,
                    .weights = static_cast<const float*>(weights),
                    .out = buffers_.state_output,
                    .m = num_rows_,
                    .slices = batch_.delta_slices,
                    .slice_of_row = batch_.slice_of_row,
                    .writes = batch_.delta_writes,
                    .states = StatesOf(layer),
                    .slot_floats = decoder_.recurrent_.slot_floats},
                   stream_);
}

void CudaDecoder::Ops::RunMamba(size_t layer) {
  const auto& w = weights_.layers[layer];
  const auto vector = [&](VectorRole role) { return static_cast<const float*>(w.vector(role)); };
  MambaArgs args{.dtype = weights_.dtype,
                 .shape = DeltaShapeOf(*config_.mamba),
                 .inputs = buffers_.delta_inputs,
                 .ld_inputs = StateInputsRow(config_),
                 .convolution = vector(VectorRole::kConvolution),
                 .conv_bias = vector(VectorRole::kConvolutionBias),
                 .decay = vector(VectorRole::kDecay),
                 .step_bias = vector(VectorRole::kDecayBias),
                 .shortest_step = config_.mamba->shortest_step,
                 .longest_step = config_.mamba->longest_step,
                 .skip = vector(VectorRole::kSkip),
                 .norm = vector(VectorRole::kDeltaNorm),
                 .norm_eps = config_.norm_eps,
                 .out = buffers_.state_output,
                 .m = num_rows_,
                 .slices = batch_.delta_slices,
                 .num_slices = batch_.num_delta_slices,
                 .slice_of_row = batch_.slice_of_row,
                 .writes = batch_.delta_writes,
                 .states = StatesOf(layer),
                 .slot_floats = decoder_.recurrent_.slot_floats,
                 .workspace = buffers_.delta};
  if (!config_.mamba->norm_has_parts()) return Mamba(args, stream_);
  const Peer& peer = decoder_.peer_;
  args.square_sums = buffers_.square_sums;
  args.whole_size = config_.mamba->num_group_parts * config_.mamba->values_size();
  Mamba(args, stream_);
  peer.peers->Sum(peer.rank, args.square_sums, RoundUp8(num_rows_), DType::kFloat32,
                  buffers_.square_parts, stream_);
  MambaNorm(args, stream_);
}

GemvArgs CudaDecoder::Ops::OfScan(const Linear& linear, LinearRole role) const {
  const bool is_steps = role == LinearRole::kScanSteps;
  GemvArgs args = LinearArgs(linear, is_steps ? buffers_.scan_ranks : buffers_.delta_out_gates,
                             is_steps ? buffers_.delta_decays : buffers_.delta_gates);
  args.float_output = true;
  return args;
}

void CudaDecoder::Ops::NormalizeScan(size_t layer) const {
  const ScanConfig& scan = *config_.scan;
  const void* const weight = weights_.layers[layer].vector(VectorRole::kScanNorm);
  ScanNorm({.dtype = weights_.dtype,
            .rank = scan.rank,
            .state_dim = scan.state_dim,
            .x = buffers_.delta_gates,
            .ranks = buffers_.scan_ranks,
            .weight = static_cast<const float*>(weight),
            .eps = scan.norm_eps,
            .m = num_rows_},
           stream_);
}

kernels::cuda::ScanArgs CudaDecoder::Ops::ScanArgsOf(size_t layer) const {
  const auto& w = weights_.layers[layer];
  const auto vector = [&](VectorRole role) { return static_cast<const float*>(w.vector(role)); };
  return {.dtype = weights_.dtype,
          .shape = ScanShapeOf(*config_.scan),
          .inputs = buffers_.delta_inputs,
          .ld_inputs = StateInputsRow(config_),
          .convolution = vector(VectorRole::kConvolution),
          .conv_bias = vector(VectorRole::kConvolutionBias),
          .convolved = buffers_.delta_out_gates,
          .steps = buffers_.delta_decays,
          .keys = buffers_.delta_gates + config_.scan->rank,
          .ld_keys = config_.scan->step_inputs_size(),
          .decay = vector(VectorRole::kDecay),
          .step_bias = vector(VectorRole::kDecayBias),
          .skip = vector(VectorRole::kSkip),
          .out = buffers_.state_output,
          .m = num_rows_,
          .slices = batch_.delta_slices,
          .num_slices = batch_.num_delta_slices,
          .slice_of_row = batch_.slice_of_row,
          .writes = batch_.delta_writes,
          .states = StatesOf(layer),
          .slot_floats = decoder_.recurrent_.slot_floats};
}

void CudaDecoder::Ops::ConvolveScan(size_t layer) { ScanConvolution(ScanArgsOf(layer), stream_); }

void CudaDecoder::Ops::RunScan(size_t layer) { SelectiveScan(ScanArgsOf(layer), stream_); }

void CudaDecoder::Ops::RunDeltaRule(size_t layer) {
  const auto& w = weights_.layers[layer];
  const auto vector = [&](VectorRole role) { return static_cast<const float*>(w.vector(role)); };
  const DeltaConfig& delta = *config_.delta;
  const int64_t ld = StateInputsRow(config_);
  const bool of_channels = delta.decays_channels();
  DeltaRule(
      {.dtype = weights_.dtype,
       .shape = DeltaShapeOf(delta),
       .inputs = buffers_.delta_inputs,
       .ld_inputs = ld,
       .out_gates = of_channels ? buffers_.delta_out_gates
                                : Advance(buffers_.delta_inputs, delta.conv_size(), weights_.dtype),
       .ld_out_gates = of_channels ? delta.values_size() : ld,
       .sigmoid_out_gates = of_channels,
       .gates = buffers_.delta_gates,
       .channel_decays = of_channels ? buffers_.delta_decays : nullptr,
       .convolution = vector(VectorRole::kConvolution),
       .decay = vector(VectorRole::kDecay),
       .decay_bias = vector(VectorRole::kDecayBias),
       .beta_scale = delta.beta_scale,
       .norm = vector(VectorRole::kDeltaNorm),
       .norm_eps = delta.norm_eps,
       .out = buffers_.state_output,
       .m = num_rows_,
       .slices = batch_.delta_slices,
       .num_slices = batch_.num_delta_slices,
       .slice_of_row = batch_.slice_of_row,
       .writes = batch_.delta_writes,
       .states = StatesOf(layer),
       .slot_floats = decoder_.recurrent_.slot_floats,
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
        .n = config_.q_size(sizes),
        .per_gate = config_.elements_per_gate(),
        .softplus = config_.arch->softplus_gates},
       stream_);
}

}  // namespace mlc_native
