// What run_layers.h asks of an `Ops`, the operations of one device on the rows of one batch, as
// concepts. An Ops owns no order; it has the memory and the kernels, and keeps these values per
// row:
//
//   residual   the residual stream
//   input      what a block of the layer reads: the normalized residual. Where the blocks of a
//              layer are parallel, both read that of the layer's input.
//   output     what a block has computed, until AddAndNormalize adds it to the residual
//
// An operation may remember its work and fuse it into the next one (the CPU does: the rows of a
// projection are normalized by the threads that are about to read them), as long as the results
// are those of this order.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "arch/model_config.h"
#include "weights/decoder_weights.h"

namespace mlc_native {

template <typename Ops, typename Vector>
concept DecoderOps =
    requires(Ops ops, const NormWeights<Vector>& norm, size_t layer, LinearRole role) {
      // residual = the embeddings of the tokens.
      ops.Embed();
      // input = norm(residual); the residual itself where the weight is absent.
      ops.Normalize(norm);
      // residual += post_norm(output), with the family's multiplier; then as Normalize.
      ops.AddAndNormalize(norm, norm);
      // residual += output, and the input stays as it is: between blocks that are parallel.
      ops.AddAndKeepInput();
      { ops.HasParallelBlocks() } -> std::same_as<bool>;
      // A linear of the layer. kQkv and kGateUp read the input, kOut reads attention's output and
      // kDown the activated rows; kOut and kDown leave the block's output. Of experts
      // (RunsExperts), all but the downs read the input or what kExpertsIn leaves, and an expert's
      // are run for the rows that have chosen it.
      ops.Project(layer, role);
      // Norms of q and k, rope; keys and values go to their pages.
      ops.RotateAndWriteKv(layer);
      // Attention of q over the pages of the layer.
      ops.Attend(layer);
      // act(gate) * up, or act(up).
      ops.Activate(layer);
      // Keeps the next rows of which something is wanted behind the last keys and values, which
      // are computed to the end then; false: there are no more. Mostly all of them come at once.
      { ops.KeepLastRows() } -> std::same_as<bool>;
      // The logits of the rows that are left, from the input.
      ops.Head();
    };

// An Ops of a model that gives hidden states.
template <typename Ops>
concept CopiesStreams = requires(Ops ops, size_t layer) {
  // Copies what is asked of the stream that enters the layer, whose first linear has run.
  ops.CopyStream(layer);
  // Copies what is asked behind the last layer, then forgets those of the kept rows whose logits
  // are not wanted. False: all of them.
  { ops.CopyLastStreams() } -> std::same_as<bool>;
};

// An Ops of a model whose last layers may read the keys and values of layers in front of them.
template <typename Ops>
concept SharesKeys = requires(const Ops ops) {
  // The last layer that writes keys and values, or a state.
  { ops.last_writer() } -> std::same_as<size_t>;
};

// An Ops of a model whose layers may scale the residual behind them.
template <typename Ops, typename Vector>
concept ScalesResidual = requires(Ops ops, const NormWeights<Vector>& norm, size_t layer) {
  // residual += norm(output).
  ops.AddOutput(norm);
  // residual *= the scale of the layer.
  ops.ScaleResidual(layer);
};

// An Ops of a model whose first layers may add to rows in place of tokens.
template <typename Ops>
concept AddsInputRows = requires(Ops ops, size_t layer) {
  // Whether the batch has such rows, and the layer adds to them.
  { ops.HasInputRows(layer) } -> std::same_as<bool>;
  // residual += the part of the layer, in those rows.
  ops.AddInputRows(layer);
};

// An Ops of a model whose layers may have inputs.
template <typename Ops>
concept TakesLayerInputs = requires(Ops ops, size_t layer) {
  // act(gate) * the layer's input, between kLayerInputGate, which reads the residual, and
  // kLayerInputUp, which leaves a block's output.
  ops.ActivateLayerInput(layer);
};

// An Ops of a model that may have residual streams (kernels/residual_streams.h), of which Embed
// makes the first ones. Its layers have inputs.
template <typename Ops, typename Vector>
concept KeepsStreams = requires(Ops ops, const NormWeights<Vector>& norm, size_t layer) {
  // The streams that enter the layer, from those behind the one before; residual = the active one.
  ops.PredictStreams(layer);
  // All streams from what the layer has made of the residual; residual = what the gate of the
  // layer's input reads.
  ops.CorrectStreams(layer);
  // All streams but the first += norm(output).
  ops.AddToStreams(norm);
  // residual = what the final norm reads of all streams.
  ops.JoinStreams();
};

// Which block of a layer reads a sum of all streams.
enum class StreamReader : uint8_t { kAttention, kFeedForward };

// An Ops of a model that may have hyper-connections (likewise). Embed makes the streams.
template <typename Ops>
concept CollapsesStreams = requires(Ops ops, size_t layer, StreamReader block) {
  // residual = the sum of the streams that the block reads.
  ops.CollapseStreams(layer, block);
  // All streams from themselves and from the block's output.
  ops.ExpandStreams(layer, block);
  // residual = the sum of the streams that the final norm reads.
  ops.LeaveStreams();
};

// An Ops of a model whose layers may have LAuReL.
template <typename Ops>
concept AddsLaurel = requires(Ops ops, size_t layer) {
  // residual = (residual + input + norm(what kLaurelUp leaves)) * the root of a half. The weight of
  // kPostAttention has this factor, too.
  ops.AddLaurel(layer);
};

// An Ops of a model whose layers may have experts.
template <typename Ops>
concept RunsExperts = requires(Ops ops, size_t layer) {
  // Chooses the experts of each row by the router's logits.
  ops.ChooseExperts(layer);
  // act(gate) * up, of the shared expert and of the chosen ones.
  ops.ActivateShared();
  ops.ActivateExperts();
  // The block's output: what the experts of a row give, weighed, and the shared one.
  ops.MixExperts();
};

// An Ops of a model whose experts may read a projection of the input.
template <typename Ops>
concept ProjectsExperts = requires(Ops ops) {
  // What the experts of a row give, weighed: what kExpertsOut reads, which leaves a block's output.
  ops.MixLatents();
  // The block's output: it, and what the shared expert gives.
  ops.AddShared();
};

// An Ops of a model whose experts may be beside a block that every row passes.
template <typename Ops>
concept NormalizesExperts = requires(Ops ops, size_t layer) {
  // The block's output: the sum of what the experts of a row give, weighed, and of what the shared
  // one gives, each normalized.
  ops.MixNormalizedExperts(layer);
};

// An Ops of a model whose layers may have linear attention.
template <typename Ops>
concept RunsDeltaLayers = requires(Ops ops, size_t layer) {
  // The gated delta rule: from what kDeltaInputs, kDeltaGates and, if there are, kDeltaDecays and
  // kDeltaOutGates leave to what kDeltaOut reads. These two read what kDeltaInputs leaves.
  ops.RunDeltaRule(layer);
};

// An Ops of a model whose queries may attend to chosen keys.
template <typename Ops>
concept ChoosesKeys = requires(Ops ops, size_t layer) {
  // Between RotateAndWriteKv and Attend, in layers that choose: runs the linears of the index,
  // writes its keys to their pages and chooses the keys that Attend of this layer and of the next
  // ones reads.
  ops.ChooseKeys(layer);
};

// An Ops of a model whose layers may have short convolutions.
template <typename Ops>
concept RunsConvolutions = requires(Ops ops, size_t layer) {
  // The gated short convolution: from what kDeltaInputs leaves to what kDeltaOut reads.
  ops.RunShortConvolution(layer);
};

// An Ops of a model whose layers may have Mamba-1.
template <typename Ops>
concept RunsScans = requires(Ops ops, size_t layer) {
  // The convolution: from what kDeltaInputs leaves to what kScanInputs reads.
  ops.ConvolveScan(layer);
  // The selective scan: from what these, kScanInputs and kScanSteps leave to what kDeltaOut reads.
  ops.RunScan(layer);
};

// An Ops of a model whose layers may have Mamba-2.
template <typename Ops>
concept RunsMamba = requires(Ops ops, size_t layer) {
  // Mamba-2: from what kDeltaInputs leaves to what kDeltaOut reads.
  ops.RunMamba(layer);
};

}  // namespace mlc_native
