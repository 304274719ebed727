#include "sim/embeddings.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>

#include "fake_model/fake_model.h"
#include "sim/input_rows.h"

namespace mlc_native::sim {
namespace {

constexpr int64_t kNumbers = 3;      // of the fake model's states
constexpr int32_t kFinalStream = 2;  // its only layer is stream 1

// The sum of the states of the last or the first row, or of all rows.
std::vector<double> SumOfStates(const Request& request) {
  const std::vector<int32_t> all = PromptOf(request);
  const std::span<const int32_t> prompt = all;
  const int64_t adapter = request.adapter != nullptr ? request.adapter->weights->rank() : 0;
  std::vector<double> sums(kNumbers);
  const bool is_mean = request.embedding->pooling == Pooling::kMean;
  const size_t end = request.embeds(Pooling::kCls) ? 1 : prompt.size();
  for (size_t length = is_mean ? 1 : end; length <= end; ++length) {
    const std::vector<float> state =
        testing::FakeModel::HiddenState(prompt.first(length), kFinalStream, adapter);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += state[i];
  }
  return sums;
}

}  // namespace

EmbeddingConfig DrawEmbedding(SimRandom& rng, bool whole_prompts) {
  EmbeddingConfig config;
  if (rng.Chance(0.8)) config.pooling = rng.Chance(0.5) ? Pooling::kMean : Pooling::kLast;
  if (whole_prompts && rng.Chance(0.4)) config.pooling = Pooling::kCls;
  if (rng.Chance(0.3)) config.dimensions = rng.Range(1, kNumbers);
  if (rng.Chance(0.8)) config.normalize = rng.Chance(0.3);  // hides differences
  return config;
}

EmbeddingConfig DrawInvalidEmbedding(SimRandom& rng) {
  EmbeddingConfig config = DrawEmbedding(rng, false);
  config.dimensions = rng.Chance(0.5) ? rng.Range(-2, 0) : kNumbers + rng.Range(1, 5);
  return config;
}

std::vector<float> ExpectedEmbedding(const Scenario& scenario, const Request& request) {
  const std::vector<int32_t> prompt = PromptOf(request);
  const EmbeddingConfig& config = *request.embedding;
  const bool is_mean = config.pooling == Pooling::kMean;
  const auto has = [](std::span<const int32_t> tokens, int32_t token) {
    return std::ranges::find(tokens, token) != tokens.end();
  };
  if (has(prompt, scenario.model.poison_token)) return {};
  const std::span<const int32_t> pooled =
      config.pooling == Pooling::kCls ? std::span(prompt).first(1)
                                      : std::span(prompt).last(is_mean ? prompt.size() : size_t{1});
  if (has(pooled, scenario.model.nan_token)) return {};
  std::vector<double> sums = SumOfStates(request);
  sums.resize(static_cast<size_t>(config.dimensions.value_or(kNumbers)));
  double squares = 0;
  for (const double sum : sums) squares += sum * sum;
  double divisor = is_mean ? static_cast<double>(prompt.size()) : 1;
  if (*config.normalize && squares > 0) divisor = std::sqrt(squares);
  std::vector<float> embedding;
  for (const double sum : sums) embedding.push_back(static_cast<float>(sum / divisor));
  return embedding;
}

}  // namespace mlc_native::sim
