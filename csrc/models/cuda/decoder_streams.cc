// Residual streams (kernels/residual_streams.h), LAuReL and gates that are cut, as launches of the
// CUDA kernels. Each of several devices has all streams; a device's gates are a part of a row.
#include "kernels/cuda/gate_cut.h"
#include "models/cuda/decoder_ops.h"

namespace mlc_native {

using kernels::StreamOp;
using kernels::cuda::StreamArgs;

kernels::StreamsView CudaDecoder::Ops::StreamsAt(float* data, int64_t step) const {
  if (!config_.residual_streams) return {};
  return {.data = data,
          .ld = config_.hidden_size,
          .step = step,
          .count = config_.residual_streams->count,
          .active = config_.residual_streams->active};
}

void CudaDecoder::Ops::KeepStreams() {
  const int64_t hidden = config_.hidden_size;
  const kernels::StreamsView kept =
      StreamsAt(buffers_.kept_streams, decoder_.limits_.max_logits * hidden);
  for (int64_t i = 0; i < kept.count; ++i) {
    kernels::cuda::GatherRows(Stream(i), batch_.logits_rows, num_rows_,
                              hidden * static_cast<int64_t>(sizeof(float)),
                              kept.data + i * kept.step, stream_);
  }
  streams_ = kept;
}

StreamArgs CudaDecoder::Ops::StepOfStreams(StreamOp op) const {
  return {.op = op,
          .dtype = weights_.dtype,
          .streams = streams_,
          .x = residual_,
          .eps = config_.norm_eps,
          .m = num_rows_,
          .dim = config_.hidden_size};
}

StreamArgs CudaDecoder::Ops::RoutedStep(StreamOp op, size_t layer) const {
  const CudaDecoderWeights::Layer& weights = weights_.layers[layer];
  StreamArgs args = StepOfStreams(op);
  args.norm = weights.norm(NormRole::kStreamRouter).weight;
  args.router = static_cast<const float*>(weights.vector(VectorRole::kStreamRouter));
  return args;
}

void CudaDecoder::Ops::SpreadStreams() {
  LaunchAddNorm({}, {}, input_);
  for (int64_t i = 1; i < streams_.count; ++i) {
    kernels::cuda::GemvArgs args =
        LinearArgs(weights_.streams_in[static_cast<size_t>(i) - 1], input_, Stream(i));
    args.float_output = true;
    LaunchLinear(args);
  }
  RunStreams(StepOfStreams(StreamOp::kSpread), stream_);
}

void CudaDecoder::Ops::PredictStreams(size_t layer) {
  StreamArgs args = RoutedStep(StreamOp::kPredict, layer);
  args.coefficients =
      static_cast<const float*>(weights_.layers[layer].vector(VectorRole::kStreamPredictions));
  RunStreams(args, stream_);
}

void CudaDecoder::Ops::CorrectStreams(size_t layer) {
  const CudaDecoderWeights::Layer& weights = weights_.layers[layer];
  const auto vector = [&](VectorRole role) {
    return static_cast<const float*>(weights.vector(role));
  };
  LaunchAddNorm(TakeAdded(), {}, nullptr);
  StreamArgs args = RoutedStep(StreamOp::kCorrect, layer);
  args.coefficients = vector(VectorRole::kStreamCorrections);
  if (config_.residual_streams->scales_active) args.scale = vector(VectorRole::kStreamScale);
  RunStreams(args, stream_);
}

void CudaDecoder::Ops::AddToStreams(const Norm& norm) {
  StreamArgs args = StepOfStreams(StreamOp::kAdd);
  args.added = FinishBlock(norm);
  args.norm = norm.weight;
  RunStreams(args, stream_);
}

void CudaDecoder::Ops::JoinStreams() {
  auto* const parts = static_cast<float*>(buffers_.ffn);
  const int64_t step = num_rows_ * config_.hidden_size;
  for (int64_t i = 1; i < streams_.count; ++i) {
    Round(Stream(i), nullptr, config_.hidden_size, num_rows_, input_);
    kernels::cuda::GemvArgs args = LinearArgs(weights_.streams_out[static_cast<size_t>(i) - 1],
                                              input_, parts + (i - 1) * step);
    args.float_output = true;
    LaunchLinear(args);
  }
  StreamArgs args = StepOfStreams(StreamOp::kJoin);
  args.added = parts;
  args.added_step = step;
  RunStreams(args, stream_);
}

void CudaDecoder::Ops::AddLaurel(size_t layer) {
  kernels::cuda::AddLaurel({.dtype = weights_.dtype,
                            .residual = residual_,
                            .input = input_,
                            .x = buffers_.laurel,
                            .norm = weights_.layers[layer].norm(NormRole::kLaurel).weight,
                            .eps = config_.norm_eps,
                            .scale = kRootOfHalf,
                            .m = num_rows_,
                            .dim = config_.hidden_size},
                           stream_);
}

void CudaDecoder::Ops::CutGates(const kernels::cuda::GemvArgs& linear, int64_t ffn,
                                float deviations) const {
  kernels::cuda::CutGatesArgs args{.dtype = weights_.dtype,
                                   .x = linear.y,
                                   .ld = linear.ldy,
                                   .deviations = deviations,
                                   .m = linear.m,
                                   .n = ffn};
  if (const Peer& peer = decoder_.peer_) {
    SumGates(args, buffers_.square_sums, stream_);
    peer.peers->Sum(peer.rank, buffers_.square_sums, RoundUp8(2 * num_rows_), DType::kFloat32,
                    buffers_.square_parts, stream_);
    args.sums = buffers_.square_sums;
    args.whole_n = ffn * peer.peers->size();
  }
  kernels::cuda::CutGates(args, stream_);
}

}  // namespace mlc_native
