#include "models/cuda/decode_graphs.h"

#include <string>

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
  try {
    return Graph::Capture(stream_, forward);
  } catch (const kernels::cuda::DeviceError& error) {
    is_off_ = true;
    log_.Write(LogLevel::kWarning,
               std::string("decoding goes on without CUDA graphs: ") + error.what());
    return {};
  }
}

}  // namespace mlc_native
