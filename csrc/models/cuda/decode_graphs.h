// Forwards of decode batches, recorded for each number of rows and replayed after that: one
// launch in the place of hundreds. Whether a forward is replayed changes no bit. Engine's thread
// only.
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

  // A number of rows, and where their tokens are read from.
  using Key = std::pair<int64_t, const int32_t*>;

  // forward() puts launches on the stream whose arguments depend on the key alone. It is run as it
  // is the first time, so that what is found out then (algorithms, modules to be loaded) need not
  // be recorded, recorded the second time, and replayed from then on.
  void Run(const Key& key, const std::function<void()>& forward);

  size_t size() const { return graphs_.size(); }

 private:
  // An empty graph when it cannot be recorded: said once, and nothing is recorded any more.
  kernels::cuda::Graph Capture(const std::function<void()>& forward);

  const kernels::cuda::Stream stream_;
  std::map<Key, kernels::cuda::Graph> graphs_;  // empty: was run once
  bool is_off_ = false;
};

}  // namespace mlc_native
