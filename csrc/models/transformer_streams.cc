// Residual streams and hyper-connections (kernels/residual_streams.h), and LAuReL, on the CPU's
// kernels.
#include "models/transformer_ops.h"

namespace mlc_native {

using kernels::StreamOp;
using kernels::StreamStep;

StreamStep Transformer::Ops::StepOfStreams(StreamOp op) const {
  const Activations& streams = buffers_.streams;
  return {.op = op,
          .streams = {.data = streams.data,
                      .ld = streams.width,
                      .step = config_.hidden_size,
                      .count = config_.residual_streams->count,
                      .active = config_.residual_streams->active},
          .x = buffers_.residual.data,
          .ldx = buffers_.residual.width,
          .m = num_rows_,
          .dim = config_.hidden_size};
}

StreamStep Transformer::Ops::RoutedStep(StreamOp op, size_t layer) const {
  const CpuDecoderWeights::Layer& weights = model_.weights_.layers[layer];
  StreamStep step = StepOfStreams(op);
  step.norm = weights.norm(NormRole::kStreamRouter).weight;
  step.eps = config_.norm_eps;
  step.router = weights.vector(VectorRole::kStreamRouter);
  return step;
}

// Of hyper-connections.
StreamStep Transformer::Ops::MixStep(StreamOp op) const {
  const HyperConnectionConfig& mixes = *config_.hyper_connections;
  return {.op = op,
          .streams = {.data = buffers_.streams.data,
                      .ld = buffers_.streams.width,
                      .step = config_.hidden_size,
                      .count = mixes.count},
          .x = buffers_.residual.data,
          .ldx = buffers_.residual.width,
          .eps = config_.norm_eps,
          .floor = mixes.floor,
          .rounds = mixes.rounds,
          .m = num_rows_,
          .dim = config_.hidden_size};
}

void Transformer::Ops::CollapseStreams(size_t layer, StreamReader block) {
  const CpuDecoderWeights::Layer& weights = model_.weights_.layers[layer];
  const bool is_attention = block == StreamReader::kAttention;
  StreamStep step = MixStep(StreamOp::kCollapse);
  step.mix = weights.vector(is_attention ? VectorRole::kAttentionMix : VectorRole::kFfnMix);
  step.mix_base =
      weights.vector(is_attention ? VectorRole::kAttentionMixBase : VectorRole::kFfnMixBase);
  step.mix_scales =
      weights.vector(is_attention ? VectorRole::kAttentionMixScales : VectorRole::kFfnMixScales);
  remembered_.Add(step);
}

void Transformer::Ops::ExpandStreams(size_t /*layer*/, StreamReader /*block*/) {
  StreamStep step = MixStep(StreamOp::kExpand);
  step.added = buffers_.output.data;
  step.ld_added = buffers_.output.width;
  remembered_.Add(step);
}

void Transformer::Ops::LeaveStreams() {
  StreamStep step = MixStep(StreamOp::kLeave);
  step.mix = model_.weights_.leave.mix;
  step.mix_base = model_.weights_.leave.base;
  step.mix_scales = model_.weights_.leave.scales;
  remembered_.Add(step);
}

void Transformer::Ops::SpreadStreams() {
  if (config_.hyper_connections) return remembered_.Add(MixStep(StreamOp::kRepeat));
  for (int64_t i = 1; i < config_.residual_streams->count; ++i) {
    RunLinear(model_.weights_.streams_in[static_cast<size_t>(i) - 1], buffers_.residual, Stream(i));
  }
  remembered_.Add(StepOfStreams(StreamOp::kSpread));
}

void Transformer::Ops::PredictStreams(size_t layer) {
  StreamStep step = RoutedStep(StreamOp::kPredict, layer);
  step.coefficients = model_.weights_.layers[layer].vector(VectorRole::kStreamPredictions);
  remembered_.Add(step);
}

void Transformer::Ops::CorrectStreams(size_t layer) {
  const CpuDecoderWeights::Layer& weights = model_.weights_.layers[layer];
  StreamStep step = RoutedStep(StreamOp::kCorrect, layer);
  step.coefficients = weights.vector(VectorRole::kStreamCorrections);
  if (config_.residual_streams->scales_active)
    step.scale = weights.vector(VectorRole::kStreamScale);
  remembered_.Add(step);
}

void Transformer::Ops::AddToStreams(const NormWeights<const float*>& norm) {
  StreamStep step = StepOfStreams(StreamOp::kAdd);
  step.added = buffers_.output.data;
  step.ld_added = buffers_.output.width;
  step.norm = norm.weight;
  step.eps = config_.norm_eps;
  remembered_.Add(step);
}

void Transformer::Ops::JoinStreams() {
  const Activations& parts = buffers_.stream_parts;
  for (int64_t i = 1; i < config_.residual_streams->count; ++i) {
    const auto index = static_cast<size_t>(i) - 1;
    RunLinear(model_.weights_.streams_out[index], Stream(i),
              {.data = parts.data + (i - 1) * config_.hidden_size, .width = parts.width});
  }
  StreamStep step = StepOfStreams(StreamOp::kJoin);
  step.added = parts.data;
  step.ld_added = parts.width;
  remembered_.Add(step);
}

void Transformer::Ops::AddLaurel(size_t layer) {
  static constexpr float kScale = kRootOfHalf;
  const Activations& residual = buffers_.residual;
  remembered_.Add(kernels::AddArgs{.x = input_->data,
                                   .ldx = input_->width,
                                   .sum = residual.data,
                                   .ld_sum = residual.width,
                                   .m = num_rows_,
                                   .n = config_.hidden_size});
  remembered_.Add(kernels::ScaleArgs{.x = residual.data,
                                     .ld = residual.width,
                                     .m = num_rows_,
                                     .n = config_.hidden_size,
                                     .scales = &kScale});
  kernels::NormalizeArgs norm =
      Norm(buffers_.laurel, model_.weights_.layers[layer].norm(NormRole::kLaurel), residual);
  norm.accumulate = true;
  remembered_.Add(norm);
}

}  // namespace mlc_native
