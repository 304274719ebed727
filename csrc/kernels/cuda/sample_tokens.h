// How CUDA makes tokens of logits. What holds for all kernels is in kernels.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/stream.h"

namespace mlc_native::kernels::cuda {

// How one row of logits becomes a token, with the order and meaning of sampling/sampler.h.
struct SamplingRow {
  float inverse_temperature = 1.0f;
  float top_p = 1.0f;
  float min_p = 0.0f;
  int32_t top_k = 0;  // 0: off
  bool greedy = false;
  bool logprobs = false;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  float repetition_penalty = 1.0f;
  int32_t num_bias = 0;
  const int32_t* bias_ids = nullptr;  // distinct
  const float* bias_values = nullptr;
  int32_t num_counts = 0;              // of generated tokens, for the penalties
  const int32_t* count_ids = nullptr;  // distinct
  const int32_t* count_values = nullptr;
  const int32_t* pending = nullptr;  // one token that counts once more (below zero: none), or null
  const int32_t* mask = nullptr;     // bit t % 32 of word t / 32: token t is allowed; null: all are
  uint64_t seed = 0;
  uint64_t sequence = 0;
};

inline constexpr int32_t kBadLogits = -1;       // NaN or +inf among the logits
inline constexpr int32_t kNothingAllowed = -2;  // all at -inf
inline constexpr int kMaxTopLogprobs = 20;

struct SampleArgs {
  float* logits = nullptr;  // [m, vocab], overwritten
  int64_t ld = 0;           // a multiple of 4
  int64_t m = 0;
  int64_t vocab = 0;
  const SamplingRow* rows = nullptr;   // [m]
  const int32_t* positions = nullptr;  // [m] of the token to be drawn
  int32_t* tokens = nullptr;           // [m] or one of the codes above
  float* logprobs = nullptr;           // [m] of the token drawn; rows with logprobs only
  int32_t* top_ids = nullptr;          // [m, kMaxTopLogprobs], best first; -1 where there are less
  float* top_logprobs = nullptr;       // [m, kMaxTopLogprobs]
  void* workspace = nullptr;           // SampleWorkspaceBytes
};
size_t SampleWorkspaceBytes(int64_t m, int64_t vocab);
void SampleTokens(const SampleArgs& args, Stream stream);

}  // namespace mlc_native::kernels::cuda
