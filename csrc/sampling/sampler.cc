#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "sampling/logit_processor.h"
#include "support/check.h"
#include "support/random.h"

namespace mlc_native {
namespace {

// Tokens below this share of the wanted mass are looked at only when those above it do not reach
// it: the first cutoff leaves at most 256 tokens, the second at most 8192.
constexpr double kMassCutoffs[] = {1.0 / 256, 1.0 / 8192};

}  // namespace

bool IsGreedy(const GenerationConfig& config) {
  return config.temperature < kGreedyTemperature || config.top_p <= 0 || config.top_k == 1;
}

float InverseTemperature(const GenerationConfig& config) {
  return static_cast<float>(1.0 / std::min(config.temperature, 1e30));
}

SampleResult Sampler::Sample(std::span<float> logits, const SamplingContext& context) {
  const GenerationConfig& config = *context.config;
  SampleResult result;
  double log_sum = 0;
  const bool has_bias = HasLogitBiasOrPenalties(config, context.generated);
  const bool changes = has_bias || !context.allowed.empty();
  if (config.logprobs || !changes) Scan(logits);
  if (config.logprobs) {
    log_sum = LogSum(logits);
    result.top_logprobs = TopLogprobs(logits, static_cast<size_t>(config.top_logprobs), log_sum);
  }
  raw_logits_.clear();
  if (has_bias) {
    if (config.logprobs) SaveRawLogits(logits, context);
    ApplyLogitBiasAndPenalties(logits, config, context.generated);
  }
  // What the mask leaves keeps its logit, so the log-probability of what is drawn stays readable.
  if (!context.allowed.empty()) ForbidTokens(logits, context.allowed);
  if (changes) Scan(logits);
  const int32_t token_id =
      IsGreedy(config) ? FindArgmax(logits, scan_)
                       : DrawToken(logits, config,
                                   RandomUniform(static_cast<uint64_t>(config.seed.value_or(0)),
                                                 context.sequence, context.position));
  result.token.token_id = token_id;
  if (config.logprobs) {
    result.token.logprob = static_cast<float>(RawLogit(logits, token_id) - log_sum);
  }
  return result;
}

SampleResult Sampler::Score(std::span<const float> logits, int32_t token_id, int num_top) {
  Scan(logits);
  const double log_sum = LogSum(logits);
  SampleResult result;
  result.token = {token_id, static_cast<float>(logits[token_id] - log_sum)};
  result.top_logprobs = TopLogprobs(logits, static_cast<size_t>(num_top), log_sum);
  return result;
}

double Sampler::LogSum(std::span<const float> logits) const {
  return scan_.max + std::log(SumExp(logits, scan_.max));
}

void Sampler::Scan(std::span<const float> logits) {
  MLC_CHECK(!logits.empty());
  ScanRow(logits, &scan_);
  if (scan_.has_nan || scan_.max == std::numeric_limits<float>::infinity()) {
    throw SamplingError(kBadLogitsMessage);
  }
  if (scan_.max == -std::numeric_limits<float>::infinity()) {
    throw SamplingError(kNothingAllowedMessage);
  }
}

std::vector<TokenLogprob> Sampler::TopLogprobs(std::span<const float> logits, size_t n,
                                               double log_sum) {
  std::vector<TokenLogprob> top;
  if (n == 0) return top;
  candidates_.SelectTopK(logits, scan_, n);
  top.reserve(candidates_.size());
  for (const Candidate& item : candidates_.items()) top.push_back({item.token_id, item.value});
  // Still logits: two of them may round to the same log-probability.
  std::stable_sort(top.begin(), top.end(), [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob > b.logprob;
  });
  for (TokenLogprob& token : top) token.logprob = static_cast<float>(token.logprob - log_sum);
  return top;
}

void Sampler::SaveRawLogits(std::span<const float> logits, const SamplingContext& context) {
  const auto save = [&](int32_t token_id) {
    if (token_id >= 0 && static_cast<size_t>(token_id) < logits.size()) {
      raw_logits_.emplace_back(token_id, logits[token_id]);
    }
  };
  for (const auto& [token_id, bias] : context.config->logit_bias) save(token_id);
  for (const auto& [token_id, count] : context.generated) save(token_id);
}

float Sampler::RawLogit(std::span<const float> logits, int32_t token_id) const {
  for (const auto& [saved_id, logit] : raw_logits_) {
    if (saved_id == token_id) return logit;
  }
  return logits[token_id];
}

int32_t Sampler::DrawToken(std::span<const float> logits, const GenerationConfig& config,
                           double u) {
  const bool has_top_k = config.top_k > 0 && static_cast<size_t>(config.top_k) < logits.size();
  const auto min_weight = static_cast<float>(config.min_p);  // the largest weight is 1
  if (has_top_k) {
    candidates_.SelectTopK(logits, scan_, static_cast<size_t>(config.top_k));
    candidates_.Exponentiate(scan_.max, InverseTemperature(config));
    if (config.top_p < 1) candidates_.KeepTopMass(config.top_p * candidates_.Sum());
  } else {
    ExpRow(logits, scan_, InverseTemperature(config), &weights_);
    const bool is_sparse = config.top_p < 1 && SelectTopMass(config.top_p * weights_.sum);
    if (!is_sparse) {
      if (config.min_p <= 0) return DrawFromRow(weights_, u);
      candidates_.SelectAtLeast(weights_.weights, weights_.block_upper, min_weight);
    }
  }
  if (config.min_p > 0) candidates_.KeepAtLeast(min_weight);
  return candidates_.Draw(u);
}

bool Sampler::SelectTopMass(double mass) {
  for (double cutoff : kMassCutoffs) {
    candidates_.SelectAtLeast(weights_.weights, weights_.block_upper,
                              static_cast<float>(cutoff * mass));
    if (candidates_.Sum() >= mass) {
      candidates_.KeepTopMass(mass);
      return true;
    }
  }
  KeepAbove(top_mass_.Find(weights_.weights, mass), &weights_);
  return false;
}

}  // namespace mlc_native
