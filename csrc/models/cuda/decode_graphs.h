// DecodeGraphs records the forward of a decode batch for each number of rows and replays it: one
// launch instead of hundreds. The results have the same bits either way. Engine's thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "kernels/cuda/runtime.h"

namespace mlc_native {

class DecodeGraphs {
 public:
  explicit DecodeGraphs(kernels::cuda::Stream stream) : stream_(stream) {}

  // The number of rows, and the address that their tokens are read from.
  using Key = std::pair<int64_t, const int32_t*>;

  // Requires: the arguments of the launches of forward() depend only on the key. The first call
  // runs it directly, because it looks up algorithms and loads modules, which cannot be recorded.
  // The second call records it, and later calls replay the recording.
  void Run(const Key& key, const std::function<void()>& forward);

  size_t size() const { return graphs_.size(); }

 private:
  // Returns an empty graph if recording fails, which is logged once; nothing is recorded
  // afterwards.
  kernels::cuda::Graph Capture(const std::function<void()>& forward);

  const kernels::cuda::Stream stream_;
  std::map<Key, kernels::cuda::Graph> graphs_;  // an empty graph has run once
  bool is_off_ = false;
};

}  // namespace mlc_native
