// From a row of logits to a token. Pure functions of one row: nothing depends on other rows.
//
// Order: log-probabilities are taken from the model's own logits; then logit bias, penalties,
// temperature, top_k, top_p, min_p and the draw. Greedy is temperature < kGreedyTemperature: the
// most likely token, lowest id on ties. Engine's thread only (scratch memory is reused, nothing is
// allocated per token in steady state).
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "config.h"
#include "data.h"

namespace mlc_native {

inline constexpr double kGreedyTemperature = 1e-5;

// Logits of a sequence that cannot be sampled from (NaN, or nothing above -inf): ends that sequence
// with an error.
class SamplingError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Counts of generated tokens, for penalties. Kept per sequence.
class TokenCounts {
 public:
  void Add(int32_t token_id);
  void Clear() { counts_.clear(); }
  // (token id, occurrences), in order of first appearance.
  std::span<const std::pair<int32_t, int32_t>> counts() const { return counts_; }

 private:
  std::vector<std::pair<int32_t, int32_t>> counts_;
  std::vector<int32_t> sorted_index_;  // implementation detail of Add for long answers
};

struct SamplingContext {
  const GenerationConfig* config = nullptr;
  const TokenCounts* generated = nullptr;  // tokens generated so far; penalties ignore the prompt
  uint64_t sequence = 0;                   // index of the sequence within its request
  uint64_t position = 0;  // position of the token to be drawn, counted from the start of the prompt
};

class Sampler {
 public:
  // Draws one token. `logits` [vocab_size] is overwritten. Throws SamplingError.
  SampleResult Sample(std::span<float> logits, const SamplingContext& context);

 private:
  std::vector<std::pair<float, int32_t>> candidates_;
};

}  // namespace mlc_native
