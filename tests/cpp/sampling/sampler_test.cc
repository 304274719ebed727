#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "sampling/infinity.h"
#include "sampling/logit_processor.h"

namespace mlc_native {
namespace {

// Draws at positions 0, 1, ... of one sequence.
class Row {
 public:
  explicit Row(std::vector<float> logits) : logits_(std::move(logits)) { config.seed = 11; }

  SampleResult Sample(uint64_t position = 0) {
    std::vector<float> logits = logits_;
    return sampler_.Sample(logits, {&config, generated.counts(), sequence, position, allowed});
  }
  int32_t Token(uint64_t position = 0) { return Sample(position).token.token_id; }

  std::map<int32_t, int> Counts(int num_draws) {
    std::map<int32_t, int> counts;
    for (int i = 0; i < num_draws; ++i) ++counts[Token(static_cast<uint64_t>(i))];
    return counts;
  }

  const std::vector<float>& logits() const { return logits_; }

  GenerationConfig config;
  TokenCounts generated;
  uint64_t sequence = 0;
  std::vector<int32_t> allowed;  // a mask, or empty

 private:
  std::vector<float> logits_;
  Sampler sampler_;
};

// The distribution that a config means, in double and by sorting everything.
std::vector<double> Reference(std::vector<float> logits, const GenerationConfig& config,
                              const TokenCounts& generated) {
  ApplyLogitBiasAndPenalties(logits, config, generated.counts());
  std::vector<size_t> ranked(logits.size());
  std::iota(ranked.begin(), ranked.end(), 0);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (config.top_k > 0) ranked.resize(std::min<size_t>(config.top_k, ranked.size()));

  std::vector<double> probs(logits.size());
  double total = 0;
  for (size_t id : ranked) {
    total += probs[id] =
        std::exp((static_cast<double>(logits[id]) - logits[ranked[0]]) / config.temperature);
  }
  double kept = 0;
  double sum = 0;
  for (size_t id : ranked) {
    const bool in_top_p = config.top_p >= 1 || sum < config.top_p * total;
    sum += probs[id];
    if (!in_top_p || probs[id] < config.min_p) probs[id] = 0;
    kept += probs[id];
  }
  for (double& prob : probs) prob /= kept;
  return probs;
}

// Pearson's statistic in standard deviations above its mean; rare tokens are counted together.
double ChiSquareDeviations(const std::map<int32_t, int>& counts, const std::vector<double>& probs,
                           int num_draws) {
  double statistic = 0;
  double degrees = -1;
  double rare_expected = 0;
  double rare_observed = 0;
  const auto add = [&](double expected, double observed) {
    statistic += (observed - expected) * (observed - expected) / expected;
    degrees += 1;
  };
  for (size_t id = 0; id < probs.size(); ++id) {
    const auto it = counts.find(static_cast<int32_t>(id));
    const double observed = it == counts.end() ? 0 : it->second;
    const double expected = probs[id] * num_draws;
    if (probs[id] == 0) {
      EXPECT_EQ(observed, 0) << "token " << id << " is excluded";
    }
    if (expected < 10) {
      rare_expected += expected;
      rare_observed += observed;
    } else {
      add(expected, observed);
    }
  }
  if (rare_expected >= 10) add(rare_expected, rare_observed);
  return degrees <= 0 ? 0 : (statistic - degrees) / std::sqrt(2 * degrees);
}

std::vector<float> RandomLogits(size_t size, float deviation, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

TEST(Sampler, GreedyTakesTheBestAndTheLowestOfEquals) {
  for (const auto& [temperature, top_p, top_k] : std::vector<std::tuple<double, double, int>>{
           {0, 1, 0}, {9e-6, 1, 0}, {1, 0, 0}, {1, 1, 1}}) {
    Row row({0, 3, 1, 3, -kInf});
    row.config.temperature = temperature;
    row.config.top_p = top_p;
    row.config.top_k = top_k;
    for (uint64_t position = 0; position < 50; ++position) EXPECT_EQ(row.Token(position), 1);
  }
}

TEST(Sampler, TheDrawDependsOnSeedSequenceAndPositionOnly) {
  const std::vector<float> logits = RandomLogits(500, 1.0f, 1);
  Row a(logits), b(logits);
  std::set<int32_t> tokens;
  for (uint64_t position = 0; position < 200; ++position) {
    Row other(RandomLogits(700, 2.0f, static_cast<uint32_t>(position)));
    other.config.top_p = 0.5;
    other.Token();
    tokens.insert(a.Token(position));
  }
  EXPECT_GT(tokens.size(), 50u);
  for (int position = 199; position >= 0; --position)
    EXPECT_EQ(b.Token(position), a.Token(position));

  const auto differences = [&](Row& changed) {
    int n = 0;
    for (uint64_t position = 0; position < 200; ++position) {
      n += changed.Token(position) != a.Token(position) ? 1 : 0;
    }
    return n;
  };
  b.sequence = 1;
  EXPECT_GT(differences(b), 150);
  b.sequence = 0;
  EXPECT_EQ(differences(b), 0);
  b.config.seed = 12;
  EXPECT_GT(differences(b), 150);
  b.config.seed = -11;
  EXPECT_GT(differences(b), 150);
}

struct Distribution {
  const char* name;
  double temperature = 1;
  int top_k = 0;
  double top_p = 1;
  double min_p = 0;
};

class SamplerDistribution : public testing::TestWithParam<Distribution> {};

TEST_P(SamplerDistribution, MatchesTheReference) {
  constexpr int kDraws = 40000;
  for (const size_t vocab_size : {7, 300}) {
    Row row(RandomLogits(vocab_size, 2.0f, 5));
    row.config.temperature = GetParam().temperature;
    row.config.top_k = GetParam().top_k;
    row.config.top_p = GetParam().top_p;
    row.config.min_p = GetParam().min_p;
    const std::vector<double> probs = Reference(row.logits(), row.config, row.generated);
    const std::map<int32_t, int> counts = row.Counts(kDraws);
    EXPECT_LT(ChiSquareDeviations(counts, probs, kDraws), 5) << "vocabulary " << vocab_size;
    for (size_t id = 0; id < probs.size(); ++id) {
      if (probs[id] > 20.0 / kDraws) {
        EXPECT_TRUE(counts.contains(static_cast<int32_t>(id))) << "token " << id << " is kept";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Configs, SamplerDistribution,
    testing::Values(
        Distribution{"plain"}, Distribution{.name = "cold", .temperature = 0.4},
        Distribution{.name = "hot", .temperature = 3}, Distribution{.name = "top_k", .top_k = 5},
        Distribution{.name = "top_k_above_vocabulary", .top_k = 1000},
        Distribution{.name = "top_p", .top_p = 0.7},
        Distribution{.name = "top_p_near_one", .top_p = 0.999},
        Distribution{.name = "min_p", .min_p = 0.1},
        Distribution{.name = "top_p_min_p", .top_p = 0.95, .min_p = 0.05},
        Distribution{.name = "all", .temperature = 0.8, .top_k = 20, .top_p = 0.9, .min_p = 0.02}),
    [](const auto& info) { return std::string(info.param.name); });

// Rows so flat that the nucleus is a large part of the vocabulary, and so large that sorting is
// avoided: the set of tokens must be the reference's.
TEST(Sampler, TopPOfAFlatRowKeepsTheReferencesTokens) {
  Row row(RandomLogits(30000, 0.3f, 6));
  row.config.top_p = 0.6;
  const std::vector<double> probs = Reference(row.logits(), row.config, row.generated);
  const auto num_kept = std::count_if(probs.begin(), probs.end(), [](double p) { return p > 0; });
  ASSERT_GT(num_kept, 10000);
  std::vector<double> by_group(100);  // tokens with equal id modulo 100
  for (size_t id = 0; id < probs.size(); ++id) by_group[id % 100] += probs[id];
  std::map<int32_t, int> counts;
  constexpr int kDraws = 20000;
  std::set<int32_t> seen;
  for (int i = 0; i < kDraws; ++i) {
    const int32_t token = row.Token(static_cast<uint64_t>(i));
    ASSERT_GT(probs[token], 0) << "token " << token << " at draw " << i;
    seen.insert(token);
    ++counts[token % 100];
  }
  EXPECT_LT(ChiSquareDeviations(counts, by_group, kDraws), 5);
  EXPECT_GT(seen.size(), static_cast<size_t>(num_kept) / 2);

  row.config.min_p = 0.5;
  const std::vector<double> truncated = Reference(row.logits(), row.config, row.generated);
  for (int i = 0; i < 2000; ++i) ASSERT_GT(truncated[row.Token(static_cast<uint64_t>(i))], 0);
}

// Exact sets: with equal steps every kept token is drawn soon.
std::set<int32_t> Support(Row& row) {
  std::set<int32_t> support;
  for (const auto& [token, count] : row.Counts(3000)) support.insert(token);
  return support;
}

TEST(Sampler, TruncationKeepsExactlyTheRightTokens) {
  // Probabilities 1/2, 1/4, 1/8, 1/8, at ids 2, 0, 1, 3.
  const float log2 = std::log(2.0f);
  Row row({2 * log2, log2, 3 * log2, log2});
  EXPECT_EQ(Support(row), (std::set<int32_t>{0, 1, 2, 3}));
  row.config.top_k = 3;
  EXPECT_EQ(Support(row), (std::set<int32_t>{0, 1, 2})) << "of equal tokens the lower id";
  row.config.top_k = 0;
  row.config.top_p = 0.4;
  EXPECT_EQ(Support(row), (std::set<int32_t>{2}));
  row.config.top_p = 0.7;
  EXPECT_EQ(Support(row), (std::set<int32_t>{0, 2}));
  row.config.top_p = 0.8;
  EXPECT_EQ(Support(row), (std::set<int32_t>{0, 1, 2}));
  row.config.top_p = 0.9;
  EXPECT_EQ(Support(row), (std::set<int32_t>{0, 1, 2, 3}));
  row.config.top_p = 1;
  row.config.min_p = 0.3;
  EXPECT_EQ(Support(row), (std::set<int32_t>{0, 2}));
  row.config.min_p = 1;
  EXPECT_EQ(Support(row), (std::set<int32_t>{2}));
  row.config.min_p = 0;
  // top_p is a share of what top_k left: 4/7 and 2/7.
  row.config.top_k = 3;
  row.config.top_p = 0.55;
  EXPECT_EQ(Support(row), (std::set<int32_t>{2}));
}

TEST(Sampler, TemperatureComesBeforeTruncation) {
  Row row({std::log(0.6f), std::log(0.4f)});
  row.config.top_p = 0.65;
  EXPECT_EQ(Support(row), (std::set<int32_t>{0, 1}));
  row.config.temperature = 0.5;  // 0.36 : 0.16
  EXPECT_EQ(Support(row), (std::set<int32_t>{0}));
}

TEST(Sampler, MinusInfinityIsNeverDrawn) {
  for (const double temperature : {0.0, 1.0, 1e300}) {
    for (const int top_k : {0, 3}) {
      for (const double top_p : {1.0, 0.99}) {
        Row row({-kInf, 0, -kInf, 0, -kInf});
        row.config.temperature = temperature;
        row.config.top_k = top_k;
        row.config.top_p = top_p;
        for (uint64_t i = 0; i < 200; ++i) ASSERT_EQ(row.Token(i) % 2, 1);
      }
    }
  }
}

TEST(Sampler, TemperatureWithoutBoundIsUniform) {
  Row row({-50, 0, 50, -1e20f});
  row.config.temperature = 1e300;
  EXPECT_EQ(Support(row), (std::set<int32_t>{0, 1, 2, 3}));
}

TEST(Sampler, RowsThatCannotBeSampledFrom) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const double temperature : {0.0, 1.0}) {
    for (const bool logprobs : {false, true}) {
      for (const bool biased : {false, true}) {
        for (const float bad : {nan, kInf}) {
          std::vector<float> logits(400, 0.5f);
          logits[333] = bad;
          Row row(logits);
          row.config.temperature = temperature;
          row.config.logprobs = logprobs;
          if (biased) row.config.logit_bias = {{1, 1.0}};
          EXPECT_THROW(row.Token(), SamplingError) << bad;
        }
        Row row(std::vector<float>(400, -kInf));
        row.config.temperature = temperature;
        row.config.logprobs = logprobs;
        if (biased) row.config.logit_bias = {{1, 1.0}};
        EXPECT_THROW(row.Token(), SamplingError);
      }
    }
  }
}

// ---- masks

std::vector<int32_t> Mask(size_t vocab_size, const std::set<int32_t>& tokens) {
  std::vector<int32_t> mask((vocab_size + 31) / 32);
  for (int32_t token : tokens) {
    mask[token / 32] |= static_cast<int32_t>(uint32_t{1} << (token % 32));
  }
  return mask;
}

TEST(Sampler, AMaskedDrawIsTheDrawOfARowWithoutTheForbiddenTokens) {
  std::mt19937 random(5);
  for (size_t vocab_size : {40, 256, 1000}) {
    std::normal_distribution<float> normal(0.0f, 2.0f);
    std::vector<float> logits(vocab_size), masked(vocab_size, -kInf);
    for (float& logit : logits) logit = normal(random);
    std::set<int32_t> tokens;
    for (int i = 0; i < 20; ++i) tokens.insert(static_cast<int32_t>(random() % vocab_size));
    for (int32_t token : tokens) masked[token] = logits[token];
    Row row(logits), reference(masked);
    row.allowed = Mask(vocab_size, tokens);
    for (const auto& [top_k, top_p, min_p] : {std::tuple(0, 1.0, 0.0), std::tuple(5, 1.0, 0.0),
                                              std::tuple(0, 0.6, 0.0), std::tuple(0, 1.0, 0.3)}) {
      for (Row* each : {&row, &reference}) {
        each->config.top_k = top_k;
        each->config.top_p = top_p;
        each->config.min_p = min_p;
        each->config.repetition_penalty = 1.5;
        each->config.logit_bias = {{*tokens.begin(), 1.0}};
        each->generated.Add(*tokens.rbegin());
      }
      for (uint64_t position = 0; position < 50; ++position) {
        EXPECT_EQ(row.Token(position), reference.Token(position));
      }
    }
    row.config.temperature = reference.config.temperature = 0;
    EXPECT_EQ(row.Token(), reference.Token());
  }
}

TEST(Sampler, LogprobsOfAMaskedRowAreOfTheWholeRow) {
  Row row({5, 1, 0, -1});
  row.config.logprobs = true;
  row.config.top_logprobs = 1;
  const double log_sum = std::log(std::exp(5.0) + std::exp(1.0) + 1 + std::exp(-1.0));
  row.allowed = Mask(4, {3});
  const SampleResult result = row.Sample();
  EXPECT_EQ(result.token.token_id, 3);
  EXPECT_NEAR(result.token.logprob, -1 - log_sum, 1e-5);
  EXPECT_EQ(result.top_logprobs.at(0).token_id, 0);
}

TEST(Sampler, ARowWithNothingAllowedIsRefused) {
  Row row({1, 2, 3});
  row.allowed = Mask(3, {});
  EXPECT_THROW(row.Sample(), SamplingError);
  row.allowed = Mask(3, {0});
  EXPECT_EQ(row.Token(), 0);
}

TEST(Sampler, IsUsableAfterAnError) {
  Sampler sampler;
  GenerationConfig config;
  config.temperature = 0;
  TokenCounts none;
  std::vector<float> bad(300, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THROW(sampler.Sample(bad, {&config, none.counts(), 0, 0}), SamplingError);
  std::vector<float> good = {0, 1};
  EXPECT_EQ(sampler.Sample(good, {&config, none.counts(), 0, 0}).token.token_id, 1);
}

TEST(Sampler, BiasAndPenaltiesShapeTheDraw) {
  Row row(RandomLogits(60, 1.0f, 7));
  row.config.logit_bias = {{3, 2.0}, {4, -100.0}};
  row.config.presence_penalty = 0.7;
  row.config.frequency_penalty = 0.3;
  row.config.repetition_penalty = 1.3;
  for (int32_t id : {5, 6, 5, 5, 59}) row.generated.Add(id);
  constexpr int kDraws = 40000;
  const std::vector<double> probs = Reference(row.logits(), row.config, row.generated);
  EXPECT_LT(ChiSquareDeviations(row.Counts(kDraws), probs, kDraws), 5);

  Row greedy({1.0f, 0.9f});
  greedy.config.temperature = 0;
  EXPECT_EQ(greedy.Token(), 0);
  greedy.generated.Add(0);
  greedy.config.frequency_penalty = 0.2;
  EXPECT_EQ(greedy.Token(), 1);
}

TEST(Sampler, LogprobsAreOfTheModelsDistribution) {
  for (int n = 0; n <= 20; ++n) {
    Row row(RandomLogits(1000, 3.0f, static_cast<uint32_t>(100 + n)));
    row.config.logprobs = true;
    row.config.top_logprobs = n;
    // None of these may show in the report.
    row.config.temperature = 0.5;
    row.config.top_p = 0.9;
    row.config.logit_bias = {{7, 50.0}};
    row.config.repetition_penalty = 2;
    row.generated.Add(8);
    const SampleResult result = row.Sample();

    const std::vector<float>& logits = row.logits();
    double sum = 0;
    for (float logit : logits) sum += std::exp(static_cast<double>(logit));
    std::vector<int32_t> ranked(logits.size());
    std::iota(ranked.begin(), ranked.end(), 0);
    std::stable_sort(ranked.begin(), ranked.end(),
                     [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    EXPECT_EQ(result.token.token_id, 7) << "the bias decides";
    EXPECT_NEAR(result.token.logprob, logits[7] - std::log(sum), 2e-6);
    ASSERT_EQ(result.top_logprobs.size(), static_cast<size_t>(n));
    for (int i = 0; i < n; ++i) {
      EXPECT_EQ(result.top_logprobs[i].token_id, ranked[i]);
      EXPECT_NEAR(result.top_logprobs[i].logprob, logits[ranked[i]] - std::log(sum), 2e-6);
    }
  }
}

TEST(Sampler, LogprobsDoNotChangeTheDraw) {
  Row plain(RandomLogits(400, 1.0f, 8)), reporting(RandomLogits(400, 1.0f, 8));
  plain.config.repetition_penalty = reporting.config.repetition_penalty = 1.5;
  plain.generated.Add(3);
  reporting.generated.Add(3);
  reporting.config.logprobs = true;
  reporting.config.top_logprobs = 5;
  for (uint64_t i = 0; i < 300; ++i) EXPECT_EQ(plain.Token(i), reporting.Token(i));
  EXPECT_EQ(plain.Sample().token.logprob, 0.0f);
  EXPECT_TRUE(plain.Sample().top_logprobs.empty());
}

TEST(Sampler, ForbiddenTokensAreNotAmongTheTopLogprobs) {
  Row row({-kInf, 1, -kInf, 1, 0});
  row.config.temperature = 0;
  row.config.logprobs = true;
  row.config.top_logprobs = 5;
  const SampleResult result = row.Sample();
  ASSERT_EQ(result.top_logprobs.size(), 3u);
  EXPECT_EQ(result.top_logprobs[0].token_id, 1);
  EXPECT_EQ(result.top_logprobs[1].token_id, 3);
  EXPECT_EQ(result.top_logprobs[2].token_id, 4);
  EXPECT_EQ(result.top_logprobs[0].logprob, result.token.logprob);
}

TEST(Sampler, ACertainTokenHasLogprobZero) {
  std::vector<float> logits(1000, -200.0f);
  logits[500] = 100.0f;
  Row row(logits);
  row.config.logprobs = true;
  const SampleResult result = row.Sample();
  EXPECT_EQ(result.token.token_id, 500);
  EXPECT_EQ(result.token.logprob, 0.0f);
}

}  // namespace
}  // namespace mlc_native
