#include "models/cuda/decode_graphs.h"

#include <string>
#include <utility>

namespace mlc_native {

using kernels::cuda::Graph;

void DecodeGraphs::Run(const Key& key, const std::function<void()>& forward) {
  const auto [found, is_new] = graphs_.try_emplace(key);
  Graph& graph = found->second;
  if (!is_new && !graph && !is_off_) graph = Capture(forward);
  if (graph) return graph.Launch(stream_);
  forward();
}

Graph DecodeGraphs::Capture(const std::function<void()>& forward) {
  Graph graph;
  try {
    graph = Graph::Capture(stream_, forward);
  } catch (const kernels::cuda::DeviceError& error) {
    log_.Write(LogLevel::kWarning,
               std::string("decoding goes on without CUDA graphs: ") + error.what());
  }
  is_off_ = !(peer_ ? peer_.peers->IsTrueOfAll(bool{graph}) : bool{graph});
  return is_off_ ? Graph() : std::move(graph);
}

}  // namespace mlc_native
