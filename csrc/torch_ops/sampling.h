// Reads the arguments of the op `sample` for all devices: every row becomes the input of the
// engine's sampler. GenerationConfig checks the values. Any thread.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "mlc_native/config.h"
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
  Tensor logits;        // float32 [m, vocab], overwritten
  OptionalTensor mask;  // int32 [m, ceil(vocab / 32)]
  std::vector<SampleRow> rows;
};

struct Sampled {
  Tensor tokens;        // int32 [m]
  Tensor logprobs;      // float32 [m], or [0] if none are wanted
  Tensor top_ids;       // int32 [m, num_top_logprobs], -1 if there are fewer
  Tensor top_logprobs;  // float32 of the same shape, -inf if there are fewer
};

// Fills *sampled. Requires: its tensors are allocated.
using SampleFunction = void (*)(const SampleBatch& batch, Sampled* sampled);

struct TokenListArguments {
  const char* names[3];  // of the arguments
  const OptionalTensor& starts;
  const OptionalTensor& ids;
  const OptionalTensor& values;
};

// The arguments of the op, as in its schema.
struct SampleArguments {
  const Tensor& logits;
  const Tensor& positions;
  const Tensor& seeds;
  const OptionalTensor& sequences;
  const OptionalTensor& temperature;
  const OptionalTensor& top_k;
  const OptionalTensor& top_p;
  const OptionalTensor& min_p;
  const OptionalTensor& presence_penalty;
  const OptionalTensor& frequency_penalty;
  const OptionalTensor& repetition_penalty;
  TokenListArguments counts;
  TokenListArguments biases;
  const OptionalTensor& mask;
  int64_t num_top_logprobs;
};

// Checks the arguments and calls `function`; null computes nothing.
Sampled RunSample(const SampleArguments& arguments, SampleFunction function);

// Runs the op `sample` on the device of `function`.
template <SampleFunction function>
std::tuple<Tensor, Tensor, Tensor, Tensor> Sample(
    const Tensor& logits, const Tensor& positions, const Tensor& seeds,
    const OptionalTensor& sequences, const OptionalTensor& temperature, const OptionalTensor& top_k,
    const OptionalTensor& top_p, const OptionalTensor& min_p,
    const OptionalTensor& presence_penalty, const OptionalTensor& frequency_penalty,
    const OptionalTensor& repetition_penalty, const OptionalTensor& count_starts,
    const OptionalTensor& count_ids, const OptionalTensor& counts,
    const OptionalTensor& bias_starts, const OptionalTensor& bias_ids, const OptionalTensor& biases,
    const OptionalTensor& mask, int64_t num_top_logprobs) {
  const Sampled sampled =
      RunSample({logits,
                 positions,
                 seeds,
                 sequences,
                 temperature,
                 top_k,
                 top_p,
                 min_p,
                 presence_penalty,
                 frequency_penalty,
                 repetition_penalty,
                 {{"count_starts", "count_ids", "counts"}, count_starts, count_ids, counts},
                 {{"bias_starts", "bias_ids", "biases"}, bias_starts, bias_ids, biases},
                 mask,
                 num_top_logprobs},
                function);
  return {sampled.tokens, sampled.logprobs, sampled.top_ids, sampled.top_logprobs};
}

}  // namespace mlc_native::ops
