// The tokens behind guesses are distributed as the model says, whatever is guessed: a chi-squared
// test of the first three tokens behind a draft, for guesses of probability 0 to 1.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "draft/drafter.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {
namespace {

constexpr int64_t kNumLetters = 10;
constexpr int64_t kNumTokens = 4;  // of an answer; a draft begins behind the first
constexpr int32_t kFirst = 3;      // the prompt
// Behind this, a chi-squared value of 9 degrees of freedom has a probability below 1e-6.
constexpr double kMaxChiSquared = 46;

using Distribution = std::array<double, kNumLetters>;

// The next token depends on the last one only. Each guess is made from the guess before it.
struct Case {
  const char* name;
  float peak;        // logit of the likely token
  double bias;       // of token 7
  int64_t guess_of;  // 0: the likely token, 1: an unlikely one, 7: token 7
  double probability;
};

FakeModelOptions Model(const Case& c) {
  FakeModelOptions model;
  model.vocab_size = kNumLetters;
  model.history_window = 1;
  model.peak = c.peak;
  return model;
}

int32_t Guess(const Case& c, int32_t last) {
  if (c.guess_of == 7) return 7;
  const int32_t likely = FakeModel::NextToken(Model(c), std::vector<int32_t>{last});
  return static_cast<int32_t>((likely + c.guess_of) % kNumLetters);
}

class CaseDrafter final : public Drafter {
 public:
  explicit CaseDrafter(const Case& c) : case_(c) {}
  void Propose(std::span<const int32_t> tokens, int64_t /*prompt_len*/, int64_t max_tokens,
               std::vector<int32_t>* drafts) override {
    int32_t last = tokens.back();
    for (; max_tokens > 0; --max_tokens) drafts->push_back(last = Guess(case_, last));
  }

 private:
  const Case case_;
};

Distribution Next(const Case& c, int32_t last) {
  const int32_t likely = FakeModel::NextToken(Model(c), std::vector<int32_t>{last});
  Distribution next;
  double sum = 0;
  for (int32_t token = 0; token < kNumLetters; ++token) {
    next[token] = std::exp((token == likely ? c.peak : 0) + (token == 7 ? c.bias : 0));
    sum += next[token];
  }
  for (double& probability : next) probability /= sum;
  return next;
}

// The distributions of the tokens of an answer.
std::vector<Distribution> Expected(const Case& c) {
  Distribution now = {};
  now[kFirst] = 1;
  std::vector<Distribution> all;
  for (int64_t i = 0; i < kNumTokens; ++i) {
    Distribution next = {};
    for (int32_t last = 0; last < kNumLetters; ++last) {
      const Distribution row = Next(c, last);
      for (int64_t token = 0; token < kNumLetters; ++token) next[token] += now[last] * row[token];
    }
    all.push_back(now = next);
  }
  return all;
}

class SpeculationDistribution : public ::testing::TestWithParam<Case> {};

TEST_P(SpeculationDistribution, IsThatOfTheModel) {
  constexpr int kNumRequests = 320;
  constexpr int32_t kNumAnswers = 64;
  const Case c = GetParam();
  TestEngineSetup setup;
  setup.model = Model(c);
  setup.max_num_sequence = kNumAnswers;
  setup.prefill_chunk_size = 4 * kNumAnswers + 8;
  setup.spec_draft_length = 3;
  setup.speculative_mode = SpeculativeMode::kNGram;
  setup.make_drafter = [&](const DraftSource&) { return std::make_unique<CaseDrafter>(c); };
  TestEngine engine(setup);
  std::vector<std::array<int64_t, kNumLetters>> counts(kNumTokens);
  for (int request = 0; request < kNumRequests; ++request) {
    GenerationConfig config = Sampled(kNumTokens, request, kNumAnswers);
    config.logit_bias = {{7, c.bias}};
    const std::string id = std::to_string(request);
    engine.Add(id, {kFirst}, config);
    engine.Run();
    for (int32_t answer = 0; answer < kNumAnswers; ++answer) {
      const std::vector<int32_t>& tokens = engine.Answer(id, answer).token_ids;
      ASSERT_EQ(std::ssize(tokens), kNumTokens);
      for (int64_t i = 0; i < kNumTokens; ++i) ++counts[i][tokens[i]];
    }
  }
  const std::vector<Distribution> expected = Expected(c);
  constexpr double kNumSamples = kNumRequests * kNumAnswers;
  for (int64_t i = 0; i < kNumTokens; ++i) {
    double chi_squared = 0;
    for (int64_t token = 0; token < kNumLetters; ++token) {
      const double mean = kNumSamples * expected[i][token];
      const auto count = static_cast<double>(counts[i][token]);
      if (mean < 1e-6) {
        EXPECT_EQ(count, 0) << "token " << token << " cannot come";
      } else {
        chi_squared += (count - mean) * (count - mean) / mean;
      }
    }
    EXPECT_LT(chi_squared, kMaxChiSquared) << "token " << i << " of the answers";
  }
  const nlohmann::json metrics = nlohmann::json::parse(engine.engine().JSONMetrics());
  const double num_first = metrics["spec_decode"]["draft_count"][1];
  const double num_right = metrics["spec_decode"]["accept_count"][1];
  EXPECT_NEAR(num_right / num_first, c.probability, 0.02) << "guesses are what they should be";
}

INSTANTIATE_TEST_SUITE_P(Guesses, SpeculationDistribution,
                         ::testing::Values(Case{"never", 2.1972F, -100, 7, 0},
                                           Case{"seldom", 0, 0, 1, 0.1},
                                           Case{"half", 2.1972F, 0, 0, 0.5},
                                           Case{"always", 2.1972F, 100, 7, 1}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mlc_native::testing
