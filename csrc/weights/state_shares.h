// What one of several devices has of the layers with states: rows and columns of their weights.
//
//   linear attention     what belongs to its key heads and to the value heads that share them. What
//                        decays of channels and output gates come from is on all devices
//   short convolutions   its share of the channels
//   Mamba-2              what belongs to its heads, and the keys and queries of its groups. A
//   single
//                        group is on all devices
//
// A value; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "arch/model_config.h"
#include "weights/part_of_weight.h"

namespace mlc_native {

class StateShares {
 public:
  // `part`: the decoder of each device. Both outlive the shares.
  StateShares(const ModelConfig& whole, const ModelConfig& part, int64_t rank)
      : whole_(whole), part_(part), rank_(rank) {}

  std::vector<IndexRange> Inputs() const;  // of the rows of kDeltaInputs
  std::vector<IndexRange> Gates() const;   // of those of kDeltaGates
  IndexRange Decays() const { return Share(part_.delta->decays_size()); }  // of kDeltaDecays
  std::vector<IndexRange> Channels() const;                                // of the convolutions
  IndexRange Outputs() const;  // of the columns of kDeltaOut, of the rows of kDeltaOutGates
  // Of the heads that have states, which short convolutions lack; and how many all devices have.
  IndexRange Heads() const { return Share(NumHeads(part_)); }
  int64_t num_heads() const { return NumHeads(whole_); }

 private:
  static int64_t NumHeads(const ModelConfig& config) {
    return config.mamba ? config.mamba->num_heads : config.delta->num_value_heads;
  }
  // The part of [0, whole) that is `part` long, moved by `offset`.
  IndexRange Share(int64_t part, int64_t offset = 0) const {
    return {offset + rank_ * part, offset + (rank_ + 1) * part};
  }
  std::vector<IndexRange> ChannelsOfMamba() const;

  const ModelConfig& whole_;
  const ModelConfig& part_;
  const int64_t rank_;
};

}  // namespace mlc_native
