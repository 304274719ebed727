// The order of a decoder: what is computed after what, written once for every device.
//
// RunLayers drives an `Ops`, the operations of one device on the rows of one batch
// (decoder_ops.h). Calls are resolved at compile time.
#pragma once

#include <cstddef>

#include "models/decoder_ops.h"

namespace mlc_native {

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

template <typename Weights>
bool HasHyperConnections(const Weights& weights) {
  return weights.vector(VectorRole::kAttentionMix) != decltype(weights.vector({})){};
}

// From the streams that enter the layer to its first input.
template <typename Weights, typename Ops>
void BeginLayer(const Weights& weights, size_t layer, Ops& ops) {
  const auto& norm = weights.norm(NormRole::kPreAttention);
  if constexpr (KeepsStreams<Ops, decltype(norm.weight)>) {
    if (HasStreams(weights)) ops.PredictStreams(layer);
  }
  if constexpr (CollapsesStreams<Ops>) {
    if (HasHyperConnections(weights)) ops.CollapseStreams(layer, StreamReader::kAttention);
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
  if constexpr (CollapsesStreams<Ops>) {
    if (HasHyperConnections(weights)) {
      ops.ExpandStreams(layer, StreamReader::kAttention);
      ops.CollapseStreams(layer, StreamReader::kFeedForward);
      return ops.Normalize(next_norm);
    }
  }
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
  if constexpr (CollapsesStreams<Ops>) {
    if (HasHyperConnections(w)) {
      ops.ExpandStreams(layer, StreamReader::kFeedForward);
      if (!is_last) return BeginLayer(weights.layers[layer + 1], layer + 1, ops);
      ops.LeaveStreams();
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
  if (weights.embedding_norm.weight != Vector{}) ops.Normalize(weights.embedding_norm);
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
