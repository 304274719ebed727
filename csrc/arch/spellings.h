// How checkpoints call their tensors, and which rows of which fused parameter each becomes. Tables
// of these, one per spelling, are in the files of families.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "arch/layer_roles.h"

namespace mlc_native {

// Names outside the layers. Those of the decoder begin with one of the prefixes, whichever the
// checkpoint uses: with or without the modules that hold the decoder.
inline constexpr std::string_view kDecoderPrefixes[] = {
    "model.", "", "language_model.model.", "model.language_model.", "model.text_model."};
inline constexpr std::string_view kHeadNames[] = {"lm_head.weight",
                                                  "language_model.lm_head.weight"};
struct TensorNames {
  std::span<const std::string_view> prefixes = kDecoderPrefixes;
  std::string_view embeddings = "embed_tokens.weight";
  std::string_view layer = "layers.";  // "<prefix>layers.7.<name of a projection or norm>"
  // And ".weight"; with norms that follow the residual, of the last layer.
  std::string_view final_norm = "norm";
  // Of a family whose embeddings are normalized: the norm has the place of that in front of
  // attention in the first layer, unless has_norm_before_layers, and gives the residual.
  std::string_view embedding_norm{};
  std::string_view distances{};      // of DistanceRule::kBuckets and kVectors
  std::string_view distance_norm{};  // of kVectors: of the rows, if they have one
  std::span<const std::string_view> heads = kHeadNames;  // whole names
};

enum class Rows : uint8_t {
  kQ,
  kKv,
  kValues,  // as many as kKv; layers whose keys are their values lack them
  kQkv,
  kHidden,
  kFfn,
  kGateUp,
  kUpGate,  // the same, of which up comes first
  kExperts,
  kOne,
  kExpertFfn,
  kExpertGateUp,
  kSharedFfn,
  kSharedGateUp,
  kExpertInput,     // what an expert reads and gives, which is as wide
  kQueryLatent,     // of latent attention: what the queries come from
  kKeyValueLatent,  // what keys and values come from, and the rotated part of the keys
  kQueryUp,
  kKeyValueUp,
  kIndexQueries,  // of layers that choose the keys of each query
  kIndexKeys,
  kIndexWeights,
  kEntryChannels,  // of compressed attention, of entries and of those of the index
  kIndexChannels,
  kGroupOut,  // one for each group of heads, all in one tensor
  kLayerInput,
  kLaurel,
  kQkvOfGroups,     // of each KV head: the q heads that read it, its k and its v
  kQvkOfFour,       // of each fourth of all heads: q, v and k
  kGatedQ,          // of each q head: its q, and the gates of what it attends to
  kAttentionGates,  // such gates alone; before q
  // Of layers with linear attention:
  kDeltaQkv,
  kDeltaKeys,  // or queries
  kDeltaValues,
  kDeltaHeads,           // one of each value head
  kDeltaChannels,        // one of each channel of the keys of all value heads
  kDeltaRank,            // what decays of channels, or output gates, come from
  kDeltaInputsOfGroups,  // of each key head: its q, its k, and v and gates of its value heads
  kDeltaGatesOfGroups,   // likewise: what its value heads write, and how fast they forget
  kConvolutionInputs,    // of a short convolution: of each channel both gates and what they gate
  kMambaInputs,          // of Mamba-2: output gates, values, keys, queries, and a step of each head
  kScanInputs,           // of Mamba-1: of each channel its input, then its output gate
  kScanStepInputs,       // what steps come from, keys and queries
  kScanChannels,         // a step of each channel
};

// "model.layers.7.<name>.weight" (and ".bias") -> the next rows of a fused matrix. Of an expert,
// the name has a "#" for its number; without one, the tensor [experts, rows, columns] has all.
struct ProjectionName {
  std::string_view name;
  LinearRole role;
  Rows rows;
  std::string_view ending = ".weight";
  std::string_view bias_ending = ".bias";  // empty: its part of a bias is 0
  // The tensor is [columns, rows], or, of all experts, [experts, columns, rows]; of these, the rows
  // may alternate between those of the first half and those of the second (gate and up). Matrices
  // that are stored as MXFP4 or as integers are not transposed.
  bool transposed = false;
  bool alternating = false;
  // Of a transposed one: it is not where the tensor has the shape of one that is not, as in
  // transformers.
  bool may_be_plain = false;
};

// "model.layers.7.<name>.weight" (and ".bias"). "#" in the name stands for the number of a head,
// for norms of which each head has its own tensor. Without a name, the weight is ones.
struct NormName {
  std::string_view name;
  NormRole role;
  std::string_view ending = ".weight";
  bool of_layer_before = false;  // the tensor is one of the layer in front
};

// A tensor whose name has `part`, and that is not there, may be there with `other` in its place. It
// then has the channels of all tensors of a convolution (WeightSlot::beside).
struct OtherName {
  std::string_view part;
  std::string_view other;
};

// "model.layers.7.<name>" -> the next elements of a vector; of kConvolution, the next channels.
struct VectorName {
  std::string_view name;
  VectorRole role;
  bool may_have_ones = false;  // dimensions of one element
};

}  // namespace mlc_native
