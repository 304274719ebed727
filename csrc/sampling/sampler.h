// From a row of logits to a token. Pure functions of one row: nothing depends on other rows.
//
// Order: log-probabilities are taken from the model's own logits; then logit bias, penalties, the
// mask of a grammar, temperature, top_k, top_p, min_p and the draw. Greedy is temperature <
// kGreedyTemperature or top_p = 0: the most likely token, lowest id on ties. Engine's thread only
// (scratch memory is reused; in steady state only the result's top_logprobs are allocated per
// token).
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "mlc_native/config.h"
#include "mlc_native/data.h"
#include "mlc_native/detail/export.h"
#include "sampling/candidates.h"
#include "sampling/row_ops.h"
#include "sampling/token_counts.h"

namespace mlc_native {

inline constexpr double kGreedyTemperature = 1e-5;

MLC_NATIVE_PRIVATE_API bool IsGreedy(const GenerationConfig& config);
// The bound keeps -inf / temperature at -inf, where 1 / temperature would round to zero.
MLC_NATIVE_PRIVATE_API float InverseTemperature(const GenerationConfig& config);

// Logits of a sequence that cannot be sampled from (NaN or +inf, or nothing above -inf that is
// allowed): ends that sequence with an error.
class SamplingError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr char kBadLogitsMessage[] = "the model's logits contain NaN or +inf";
inline constexpr char kNothingAllowedMessage[] =
    "no token can be sampled: the logits of all allowed tokens are -inf";

struct SamplingContext {
  const GenerationConfig* config = nullptr;
  TokenCountsView generated;  // so far; penalties ignore the prompt
  uint64_t sequence = 0;      // index of the sequence within its request
  uint64_t position = 0;  // position of the token to be drawn, counted from the start of the prompt
  // Bit t % 32 of word t / 32: whether token t may be drawn. Empty: every token.
  std::span<const int32_t> allowed = {};
};

class MLC_NATIVE_PRIVATE_API Sampler {
 public:
  // Draws one token. `logits` [vocab_size] is overwritten. Throws SamplingError.
  // The log-probabilities are filled in when config->logprobs is set; tokens at -inf are not among
  // the top_logprobs.
  SampleResult Sample(std::span<float> logits, const SamplingContext& context);
  // The log-probabilities of a token that is known, and of the num_top most likely tokens. Throws
  // SamplingError.
  SampleResult Score(std::span<const float> logits, int32_t token_id, int num_top);

 private:
  // Scans the row into scan_ and refuses what cannot be sampled from.
  void Scan(std::span<const float> logits);
  // The logarithm of the sum of exp(logits), of a row that has been scanned.
  double LogSum(std::span<const float> logits) const;
  std::vector<TokenLogprob> TopLogprobs(std::span<const float> logits, size_t n, double log_sum);
  // Remembers the logits that bias and penalties are about to change.
  void SaveRawLogits(std::span<const float> logits, const SamplingContext& context);
  float RawLogit(std::span<const float> logits, int32_t token_id) const;
  int32_t DrawToken(std::span<const float> logits, const GenerationConfig& config, double u);
  // Fills candidates_ from weights_ with the smallest set of the best tokens that has `mass`. False
  // when that is a large part of the vocabulary: then weights_ are truncated in place.
  bool SelectTopMass(double mass);

  RowScan scan_;
  RowWeights weights_;
  Candidates candidates_;
  TopMass top_mass_;
  std::vector<std::pair<int32_t, float>> raw_logits_;
};

}  // namespace mlc_native
