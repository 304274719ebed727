// DecodeGraphs records the forward of a decode batch for each number of rows and replays it: one
// launch instead of hundreds. The results have the same bits either way. Of several devices that
// compute a model together, all have a recording or none, as NCCL demands. Engine's thread only.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "kernels/cuda/adapters.h"
#include "kernels/cuda/runtime.h"
#include "mlc_native/detail/log.h"
#include "models/cuda/peers.h"

namespace mlc_native {

class DecodeGraphs {
 public:
  explicit DecodeGraphs(kernels::cuda::Stream stream, Log log = {}, Peer peer = {})
      : stream_(stream), log_(std::move(log)), peer_(peer) {}

  struct Key {
    int64_t num_rows = 0;
    int64_t rows_at_once = 0;              // of a call of DecodeAttention
    const int32_t* sampled = nullptr;      // where their tokens are read
    const float* states_out = nullptr;     // where states are written; null: none are asked for
    const float* target_states = nullptr;  // that a draft head reads; null: its own
    // Where those of rows are; null: no row has one.
    const kernels::cuda::AdapterMatrices* const* adapters = nullptr;

    auto operator<=>(const Key&) const = default;
  };

  // Requires: the arguments of the launches of forward() depend only on the key. The first call
  // runs it directly, because it looks up algorithms and loads modules, which cannot be recorded.
  // The second call records it, and later calls replay the recording.
  void Run(const Key& key, const std::function<void()>& forward);
  // Forgets the recordings, because what depends only on the key has changed.
  void Clear() { graphs_.clear(); }

  size_t size() const { return graphs_.size(); }

 private:
  // Returns an empty graph if recording fails, here or on a peer, which is logged once; nothing is
  // recorded afterwards.
  kernels::cuda::Graph Capture(const std::function<void()>& forward);

  const kernels::cuda::Stream stream_;
  const Log log_;
  const Peer peer_;
  std::map<Key, kernels::cuda::Graph> graphs_;  // an empty graph has run once
  bool is_off_ = false;
};

}  // namespace mlc_native
