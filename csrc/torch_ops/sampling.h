// The arguments of the op `sample`, which has many, read once for all devices: every row becomes
// what the engine's own sampler takes. Values are checked by GenerationConfig.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "config/config.h"
#include "sampling/token_counts.h"
#include "torch_ops/outputs.h"

namespace mlc_native::ops {

struct SampleRow {
  GenerationConfig config;
  TokenCounts generated;
  uint64_t sequence = 0;
  uint64_t position = 0;
};

struct SampleBatch {
  at::Tensor logits;    // float32 [m, vocab], overwritten
  OptionalTensor mask;  // int32 [m, ceil(vocab / 32)]
  std::vector<SampleRow> rows;
};

struct Sampled {
  at::Tensor tokens;        // int32 [m]
  at::Tensor logprobs;      // float32 [m], or [0] where none are wanted
  at::Tensor top_ids;       // int32 [m, num_top_logprobs], -1 where there are less
  at::Tensor top_logprobs;  // float32 likewise, -inf
};

// Fills *sampled, whose tensors are allocated.
using SampleFunction = void (*)(const SampleBatch& batch, Sampled* sampled);

// Registers the op `sample` for the dispatch key of `library`; null computes nothing.
void RegisterSample(torch::Library& library, SampleFunction function);

}  // namespace mlc_native::ops
