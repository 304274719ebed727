// The order of a decoder: what is computed after what, written once for every device.
//
// RunLayers drives an `Ops`, the operations of one device on the rows of one batch. An Ops owns no
// order; it has the memory and the kernels, and keeps these values per row:
//
//   residual   the residual stream
//   input      what a block of the layer reads: the normalized residual. Where the blocks of a
//              layer are parallel, both read that of the layer's input.
//   output     what a block has computed, until AddAndNormalize adds it to the residual
//
// An operation may remember its work and fuse it into the next one (the CPU does: the rows of a
// projection are normalized by the threads that are about to read them), as long as the results
// are those of this order. Calls are resolved at compile time.
#pragma once

#include <concepts>
#include <cstddef>

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

// An Ops of a model whose layers may have Mamba-2.
template <typename Ops>
concept RunsMamba = requires(Ops ops, size_t layer) {
  // Mamba-2: from what kDeltaInputs leaves to what kDeltaOut reads.
  ops.RunMamba(layer);
};

// An Ops of a model whose layers may have Mamba-1.
template <typename Ops>
concept RunsScans = requires(Ops ops, size_t layer) {
  // The convolution: from what kDeltaInputs leaves to what kScanInputs reads.
  ops.ConvolveScan(layer);
  // The selective scan: from what these, kScanInputs and kScanSteps leave to what kDeltaOut reads.
  ops.RunScan(layer);
};

// Whether the layer has a state in place of keys and values.
template <typename Weights>
bool IsRecurrent(const Weights& weights) {
  return weights.num_experts(LinearRole::kDeltaInputs) > 0;
}

template <typename Weights>
bool Attends(const Weights& weights) {
  return weights.num_experts(LinearRole::kQkv) > 0;
}

// Mostly both; a layer that is one block alone has one of them.
template <typename Weights>
bool HasAttention(const Weights& weights) {
  return IsRecurrent(weights) || Attends(weights);
}
template <typename Weights>
bool HasFeedForward(const Weights& weights) {
  return weights.num_experts(LinearRole::kGateUp) > 0 ||
         weights.num_experts(LinearRole::kRouter) > 0;
}

// What a layer has in place of keys and values, or beside them: up to what kDeltaOut reads.
template <typename Weights, RunsDeltaLayers Ops>
void Recurrence(const Weights& weights, size_t layer, Ops& ops) {
  const bool has_gates = weights.num_experts(LinearRole::kDeltaGates) > 0;
  ops.Project(layer, LinearRole::kDeltaInputs);
  if (has_gates) ops.Project(layer, LinearRole::kDeltaGates);
  for (const LinearRole role : {LinearRole::kDeltaDecays, LinearRole::kDeltaOutGates}) {
    if (weights.num_experts(role) > 0) ops.Project(layer, role);
  }
  if constexpr (CopiesStreams<Ops>) {
    if (!Attends(weights)) ops.CopyStream(layer);
  }
  if constexpr (RunsScans<Ops>) {
    if (weights.num_experts(LinearRole::kScanSteps) > 0) {
      ops.ConvolveScan(layer);
      ops.Project(layer, LinearRole::kScanInputs);
      ops.Project(layer, LinearRole::kScanSteps);
      return ops.RunScan(layer);
    }
  }
  if constexpr (RunsMamba<Ops>) {
    if (weights.vector(VectorRole::kSkip) != decltype(weights.vector({})){}) {
      return ops.RunMamba(layer);
    }
  }
  if constexpr (RunsConvolutions<Ops>) {
    if (!has_gates) return ops.RunShortConvolution(layer);
  }
  ops.RunDeltaRule(layer);
}

// Attention of a layer, up to what kOut reads, and what is in its place or beside it.
template <typename Weights, typename Ops>
void Attention(const Weights& weights, size_t layer, Ops& ops) {
  if constexpr (AddsLaurel<Ops>) {
    if (weights.num_experts(LinearRole::kLaurelDown) > 0) {
      ops.Project(layer, LinearRole::kLaurelDown);
      ops.Project(layer, LinearRole::kLaurelUp);
      ops.AddLaurel(layer);
    }
  }
  if (Attends(weights)) {
    ops.Project(layer, LinearRole::kQkv);
    if constexpr (CopiesStreams<Ops>) ops.CopyStream(layer);
    ops.RotateAndWriteKv(layer);
    if constexpr (ChoosesKeys<Ops>) {
      if (weights.num_experts(LinearRole::kIndexKeys) > 0) ops.ChooseKeys(layer);
    }
    ops.Attend(layer);
  }
  if constexpr (RunsDeltaLayers<Ops>) {
    if (IsRecurrent(weights)) Recurrence(weights, layer, ops);
  }
}

// The first linear of the feed-forward block. It is that of the layer where this is one block.
template <typename Weights, typename Ops>
void BeginFeedForward(const Weights& weights, size_t layer, LinearRole role, Ops& ops) {
  ops.Project(layer, role);
  if constexpr (CopiesStreams<Ops>) {
    if (!HasAttention(weights)) ops.CopyStream(layer);
  }
}

// The experts of a layer: from the input to the output.
template <typename Weights, typename Ops>
void MixtureOfExperts(const Weights& weights, size_t layer, Ops& ops) {
  BeginFeedForward(weights, layer, LinearRole::kRouter, ops);
  ops.ChooseExperts(layer);
  if (weights.num_experts(LinearRole::kSharedGateUp) > 0) {
    ops.Project(layer, LinearRole::kSharedGateUp);
    ops.ActivateShared();
    ops.Project(layer, LinearRole::kSharedDown);
  }
  const bool reads_latents = weights.num_experts(LinearRole::kExpertsIn) > 0;
  if (reads_latents) ops.Project(layer, LinearRole::kExpertsIn);
  ops.Project(layer, LinearRole::kExpertGateUp);
  ops.ActivateExperts();
  ops.Project(layer, LinearRole::kExpertDown);
  if constexpr (ProjectsExperts<Ops>) {
    if (reads_latents) {
      ops.MixLatents();
      ops.Project(layer, LinearRole::kExpertsOut);
      return ops.AddShared();
    }
  }
  ops.MixExperts();
}

// Experts beside the shared one, which reads the input. What they read, and their router, are norms
// of their own of the residual.
template <typename Weights, typename Ops>
void ExpertsBesideBlock(const Weights& weights, size_t layer, Ops& ops) {
  ops.Project(layer, LinearRole::kSharedGateUp);
  ops.ActivateShared();
  ops.Project(layer, LinearRole::kSharedDown);
  ops.Normalize(weights.norm(NormRole::kRouter));
  ops.Project(layer, LinearRole::kRouter);
  ops.ChooseExperts(layer);
  ops.Normalize(weights.norm(NormRole::kPreExperts));
  ops.Project(layer, LinearRole::kExpertGateUp);
  ops.ActivateExperts();
  ops.Project(layer, LinearRole::kExpertDown);
  ops.MixNormalizedExperts(layer);
}

// The feed-forward block of a layer: from the input to the output.
template <typename Weights, typename Ops>
void FeedForward(const Weights& weights, size_t layer, Ops& ops) {
  if constexpr (RunsExperts<Ops>) {
    if (weights.num_experts(LinearRole::kRouter) > 0) {
      if constexpr (NormalizesExperts<Ops>) {
        if (weights.norm(NormRole::kRouter).weight != decltype(weights.norm({}).weight){}) {
          return ExpertsBesideBlock(weights, layer, ops);
        }
      }
      return MixtureOfExperts(weights, layer, ops);
    }
  }
  BeginFeedForward(weights, layer, LinearRole::kGateUp, ops);
  ops.Activate(layer);
  ops.Project(layer, LinearRole::kDown);
}

template <typename Weights>
bool HasStreams(const Weights& weights) {
  return weights.vector(VectorRole::kStreamRouter) != decltype(weights.vector({})){};
}

// From the streams that enter the layer to its first input.
template <typename Weights, typename Ops>
void BeginLayer(const Weights& weights, size_t layer, Ops& ops) {
  const auto& norm = weights.norm(NormRole::kPreAttention);
  if constexpr (KeepsStreams<Ops, decltype(norm.weight)>) {
    if (HasStreams(weights)) ops.PredictStreams(layer);
  }
  ops.Normalize(norm);
}

// Adds the output of the feed-forward block to the streams, and to all but the first what the input
// of the layer makes of the active one.
template <typename Weights, typename Ops>
void EndLayerOfStreams(const Weights& weights, size_t layer, Ops& ops) {
  ops.AddOutput(weights.norm(NormRole::kPostFfn));
  ops.CorrectStreams(layer);
  ops.Project(layer, LinearRole::kLayerInputGate);
  ops.ActivateLayerInput(layer);
  ops.Project(layer, LinearRole::kLayerInputUp);
  ops.AddToStreams(weights.norm(NormRole::kPostLayerInput));
}

// Adds the output of the feed-forward block, and prepares what comes behind the layer.
template <typename Weights, typename Norm, typename Ops>
void EndLayer(const Weights& weights, size_t layer, const Norm& next_norm, Ops& ops) {
  const Norm* post_norm = &weights.norm(NormRole::kPostFfn);
  if constexpr (ScalesResidual<Ops, decltype(Norm::weight)> && TakesLayerInputs<Ops>) {
    if (weights.num_experts(LinearRole::kLayerInputGate) > 0) {
      ops.AddOutput(*post_norm);
      ops.Project(layer, LinearRole::kLayerInputGate);
      ops.ActivateLayerInput(layer);
      ops.Project(layer, LinearRole::kLayerInputUp);
      post_norm = &weights.norm(NormRole::kPostLayerInput);
    }
  }
  if constexpr (ScalesResidual<Ops, decltype(Norm::weight)>) {
    if (weights.vector(VectorRole::kLayerScale) != decltype(Norm::weight){}) {
      ops.AddOutput(*post_norm);
      ops.ScaleResidual(layer);
      return ops.Normalize(next_norm);
    }
  }
  if constexpr (AddsInputRows<Ops> && ScalesResidual<Ops, decltype(Norm::weight)>) {
    if (ops.HasInputRows(layer)) {
      ops.AddOutput(*post_norm);
      ops.AddInputRows(layer);
      return ops.Normalize(next_norm);
    }
  }
  ops.AddAndNormalize(*post_norm, next_norm);
}

// From what kOut or kDeltaOut reads to the input of the next block, which is `next_norm`'s where
// blocks follow one another.
template <typename Weights, typename Norm, typename Ops>
void FinishAttention(const Weights& weights, size_t layer, const Norm& next_norm, Ops& ops) {
  // Where the second of two parallel blocks has a norm of its own, it is of the same residual.
  const bool is_parallel = ops.HasParallelBlocks();
  if (is_parallel && weights.norm(NormRole::kPreFfn).weight != decltype(Norm::weight){}) {
    ops.Normalize(weights.norm(NormRole::kPreFfn));
  }
  const bool has_both = IsRecurrent(weights) && Attends(weights);
  if (has_both) {
    ops.Project(layer, LinearRole::kOut);
    ops.AddAndKeepInput();
  }
  ops.Project(layer, IsRecurrent(weights) ? LinearRole::kDeltaOut : LinearRole::kOut);
  if (is_parallel) return ops.AddAndKeepInput();
  ops.AddAndNormalize(weights.norm(NormRole::kPostAttention), next_norm);
}

// The part of a layer behind attention.
template <typename Matrix, typename Vector, DecoderOps<Vector> Ops>
void FinishLayer(const DecoderWeights<Matrix, Vector>& weights, size_t layer, Ops& ops) {
  const LayerWeights<Matrix, Vector>& w = weights.layers[layer];
  const bool is_last = layer + 1 == weights.layers.size();
  const auto& next =
      is_last ? weights.final_norm : weights.layers[layer + 1].norm(NormRole::kPreAttention);
  if (HasAttention(w)) {
    const bool has_more = HasFeedForward(w);
    FinishAttention(w, layer, has_more ? w.norm(NormRole::kPreFfn) : next, ops);
    if (!has_more) return;
  }
  FeedForward(w, layer, ops);
  if constexpr (KeepsStreams<Ops, Vector>) {
    if (HasStreams(w)) {
      EndLayerOfStreams(w, layer, ops);
      if (!is_last) return BeginLayer(weights.layers[layer + 1], layer + 1, ops);
      ops.JoinStreams();
      return ops.Normalize(next);
    }
  }
  EndLayer(w, layer, next, ops);
}

template <typename Matrix, typename Vector, DecoderOps<Vector> Ops>
void RunLayers(const DecoderWeights<Matrix, Vector>& weights, Ops& ops) {
  size_t last = weights.layers.size() - 1;
  if constexpr (SharesKeys<Ops>) last = ops.last_writer();
  ops.Embed();
  BeginLayer(weights.layers.front(), 0, ops);
  for (size_t layer = 0; layer <= last; ++layer) {
    Attention(weights.layers[layer], layer, ops);
    if (layer < last) FinishLayer(weights, layer, ops);
  }
  // Past the last keys and values, only rows whose results are wanted matter.
  while (ops.KeepLastRows()) {
    FinishLayer(weights, last, ops);
    for (size_t layer = last + 1; layer < weights.layers.size(); ++layer) {
      Attention(weights.layers[layer], layer, ops);
      FinishLayer(weights, layer, ops);
    }
    if constexpr (CopiesStreams<Ops>) {
      if (!ops.CopyLastStreams()) continue;
    }
    ops.Head();
  }
}

}  // namespace mlc_native
