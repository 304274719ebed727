// What the parameters of a decoder's layer are for, after fusion: linears, norms and other vectors.
// The loader fills one of each role that a family has, and the model finds them by role.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace mlc_native {

// What a linear is for: a packed matrix [rows, columns], with a bias in some families.
enum class LinearRole : uint8_t {
  kQkv,     // [q + 2 kv, hidden]: q heads, k heads, v heads. Of latent attention: what the queries
            // come from, what keys and values come from, and the rotated part of all keys
  kOut,     // [hidden, q]; of latent attention [hidden, values]
  kGateUp,  // [2 ffn, hidden]; [ffn, hidden] where the feed-forward block has no gate. It and kDown
            // are of layers without experts
  kDown,    // [hidden, ffn]
  kRouter,  // [experts, hidden]: the logits of the choice; a row more weighs the shared expert
  kExpertGateUp,  // of each expert: [2 ffn, hidden]
  kExpertDown,    // of each expert: [hidden, ffn]
  kSharedGateUp,  // of the expert that every row passes
  kSharedDown,
  kQueryUp,  // of latent attention: the queries from what they come from
  // Likewise, of each head:
  kHeadKeyUp,    // [latent, key without its rotated part]: what a query is multiplied with
  kHeadValueUp,  // [value, latent]
  // Of layers that choose the keys of each query (KeyChoiceConfig):
  kIndexQueries,  // [index heads * index size, what queries come from]
  kIndexKeys,     // [index size, hidden]
  kIndexWeights,  // [index heads, hidden]: of the scores of each head
  // Of layers with linear attention, in place of kQkv and kOut:
  kDeltaInputs,  // [keys + keys + values + values, hidden]: queries, keys, values and output gates,
                 // or the numbers that these and decays come from; in other layers with states,
                 // all that these read
  kDeltaGates,   // [2 value heads, hidden]: how much each writes, and how fast it forgets, unless
                 // channels of the keys do so by themselves
  kDeltaOut,     // [hidden, values]
  // Likewise, where these are products of a few numbers, which kDeltaInputs gives:
  kDeltaDecays,    // [value heads * key dim, rank]: how fast each channel of the keys forgets
  kDeltaOutGates,  // [values, rank]: output gates
  // Of Mamba-1, whose kDeltaInputs gives [channels + channels]: inputs and output gates:
  kScanInputs,  // [rank + 2 states, channels]: of the convolved inputs, what steps come from, keys
                // and queries
  kScanSteps,   // [channels, rank]: steps
  // Of layers with inputs:
  kLayerInputGate,  // [layer input, hidden]: what a layer's input is multiplied with
  kLayerInputUp,    // [hidden, layer input]
  // LAuReL, a path of few numbers beside attention:
  kLaurelDown,  // [rank, hidden]
  kLaurelUp,    // [hidden, rank]
  // Of experts that read a projection of the input, which has its size in place of hidden's:
  kExpertsIn,   // [latent, hidden]
  kExpertsOut,  // [hidden, latent]: of the weighed sum of what the experts of a row give
  // Of compressed attention (CompressionConfig):
  kTokenRows,  // [token row, hidden]: what a token leaves for entries
  kGroupOut,   // [group, q / groups]: of each group of heads, what kOut reads of what they give
};
inline constexpr LinearRole kLinearRoles[] = {LinearRole::kQkv,
                                              LinearRole::kOut,
                                              LinearRole::kGateUp,
                                              LinearRole::kDown,
                                              LinearRole::kRouter,
                                              LinearRole::kExpertGateUp,
                                              LinearRole::kExpertDown,
                                              LinearRole::kSharedGateUp,
                                              LinearRole::kSharedDown,
                                              LinearRole::kQueryUp,
                                              LinearRole::kHeadKeyUp,
                                              LinearRole::kHeadValueUp,
                                              LinearRole::kIndexQueries,
                                              LinearRole::kIndexKeys,
                                              LinearRole::kIndexWeights,
                                              LinearRole::kDeltaInputs,
                                              LinearRole::kDeltaGates,
                                              LinearRole::kDeltaOut,
                                              LinearRole::kDeltaDecays,
                                              LinearRole::kDeltaOutGates,
                                              LinearRole::kScanInputs,
                                              LinearRole::kScanSteps,
                                              LinearRole::kLayerInputGate,
                                              LinearRole::kLayerInputUp,
                                              LinearRole::kLaurelDown,
                                              LinearRole::kLaurelUp,
                                              LinearRole::kExpertsIn,
                                              LinearRole::kExpertsOut,
                                              LinearRole::kTokenRows,
                                              LinearRole::kGroupOut};
inline constexpr size_t kNumLinearRoles = std::size(kLinearRoles);
// Whether a layer has one for each expert, of which a row reads those that it chose.
constexpr bool IsOfExperts(LinearRole role) {
  return role == LinearRole::kExpertGateUp || role == LinearRole::kExpertDown;
}
// Whether it is of layers with a state in place of keys and values.
constexpr bool IsOfDelta(LinearRole role) {
  return role == LinearRole::kDeltaInputs || role == LinearRole::kDeltaGates ||
         role == LinearRole::kDeltaOut || role == LinearRole::kDeltaDecays ||
         role == LinearRole::kDeltaOutGates || role == LinearRole::kScanInputs ||
         role == LinearRole::kScanSteps;
}
// Whether it is of layers that choose the keys of each query.
constexpr bool IsOfKeyChoice(LinearRole role) {
  return role == LinearRole::kIndexQueries || role == LinearRole::kIndexKeys ||
         role == LinearRole::kIndexWeights;
}
// Whether a layer has one for each head, or for each group of them.
constexpr bool IsOfHeads(LinearRole role) {
  return role == LinearRole::kHeadKeyUp || role == LinearRole::kHeadValueUp ||
         role == LinearRole::kGroupOut;
}

// What a norm is for. A family has some of them.
enum class NormRole : uint8_t {
  kPreAttention,
  kPostAttention,  // of attention's output, before it is added to the residual
  kPreFfn,
  kPostFfn,
  kQ,  // of latent attention: of what the queries come from
  kK,  // likewise: of what keys and values come from
  kV,
  kPostLayerInput,  // of what kLayerInputUp gives, before it is added to the residual
  kLaurel,          // of what kLaurelUp gives, likewise
  kStreamRouter,    // of the residual stream that chooses how all of them are mixed
  kIndexKeys,       // [index size]: of what kIndexKeys gives; always a LayerNorm, with a bias
  // Of compressed attention: of each head of what kQueryUp gives, of entries, and of their index's:
  kQueryHeads,
  kEntries,
  kIndexEntries,
  // Within a block, of what a linear reads:
  kAttentionOut,  // [values]: kOut
  kFfnDown,       // [ffn]: kDown
  // Of experts beside a block that every row passes, the shared expert, whose input is that of
  // kPreFfn. They are of the residual, and of what each of both gives:
  kRouter,
  kPreExperts,
  kPostExperts,
  kPostShared,
};
inline constexpr size_t kNumNormRoles = 20;
// Whether only layers have it whose experts are beside a block.
constexpr bool IsOfExpertsBeside(NormRole role) { return role >= NormRole::kRouter; }

// What other vectors of a layer are for.
enum class VectorRole : uint8_t {
  kSinks,         // [q heads]: a logit of each head that only the denominator of its softmax has
  kActivation,    // [2]: the two parameters of xIELU
  kCorrection,    // [experts]: added to the scores of experts for the choice only
  kLayerScale,    // [1]: of the residual behind the layer
  kExpertScales,  // [experts]: of the weights of experts
  // Of residual streams (kernels/residual_streams.h):
  kStreamRouter,       // [streams, hidden]
  kStreamPredictions,  // [streams * streams, streams]
  kStreamCorrections,  // [streams, streams]
  kStreamScale,        // [hidden]: of the corrected stream that the layer's input is gated with
  // Of hyper-connections (likewise), in front of attention and of the feed-forward block:
  kAttentionMix,        // [mixes, streams * hidden]
  kAttentionMixBase,    // [mixes]
  kAttentionMixScales,  // [3]
  kFfnMix,
  kFfnMixBase,
  kFfnMixScales,
  // Of compressed attention (kernels/compression.h): what is added to the weights of tokens.
  kEntryBias,       // [tokens, channels]
  kIndexEntryBias,  // likewise of the index
  kTokenExperts,    // [vocab, chosen]: the experts of each token, in place of a choice
  // Of layers with states:
  kConvolution,  // [width, channels], the oldest row first: of queries, keys and values, or a short
                 // convolution's
  kDecay,        // [value heads]: the logarithm of how fast each forgets; of Mamba-1 [states,
                 // channels], of each number of a channel's state
  kDecayBias,    // [value heads]: added to what says how fast it forgets; of each channel of its
                 // keys where these do so by themselves; of Mamba-1 [channels]
  kDeltaNorm,    // [value dim]: of what each value head gives; of Mamba-2 [values], of all heads
  // Of Mamba-1 and Mamba-2:
  kConvolutionBias,  // [channels]
  kSkip,             // [value heads]: how much of a head's input is added to what it gives; of
                     // Mamba-1 [channels]
  // Of Mamba-1:
  kScanNorm,  // [rank + 2 states]: three norms of what kScanInputs gives
};
inline constexpr size_t kNumVectorRoles = 25;
constexpr bool IsOfStreams(VectorRole role) {
  return role >= VectorRole::kStreamRouter && role <= VectorRole::kStreamScale;
}
constexpr bool IsOfHyperConnections(VectorRole role) {
  return role >= VectorRole::kAttentionMix && role <= VectorRole::kFfnMixScales;
}
// Whether it is of layers with states.
constexpr bool IsOfDelta(VectorRole role) { return role >= VectorRole::kConvolution; }

}  // namespace mlc_native
