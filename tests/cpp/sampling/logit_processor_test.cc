#include "sampling/logit_processor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "sampling/infinity.h"
#include "support/check.h"

namespace mlc_native {
namespace {

std::vector<float> Apply(std::vector<float> logits, const GenerationConfig& config,
                         const std::vector<int32_t>& generated = {}) {
  TokenCounts counts;
  for (int32_t id : generated) counts.Add(id);
  ApplyLogitBiasAndPenalties(logits, config, counts.counts());
  return logits;
}

TEST(LogitProcessor, BiasIsAddedToTheListedTokens) {
  GenerationConfig config;
  config.logit_bias = {{0, 1.5}, {2, -100}, {0, 0.5}};
  EXPECT_EQ(Apply({1, 2, 3}, config), std::vector<float>({3, 2, -97}));
}

TEST(LogitProcessor, PresenceAndFrequencyCountGeneratedTokens) {
  GenerationConfig config;
  config.presence_penalty = 0.5;
  config.frequency_penalty = 0.25;
  EXPECT_EQ(Apply({1, 1, 1, -1}, config, {1, 3, 1}), std::vector<float>({1, 0, 1, -1.75}));
  config.presence_penalty = -0.5;
  config.frequency_penalty = -0.25;
  EXPECT_EQ(Apply({1, 1, 1, -1}, config, {1, 3, 1}), std::vector<float>({1, 2, 1, -0.25}));
}

TEST(LogitProcessor, RepetitionDividesPositiveAndMultipliesNegativeLogits) {
  GenerationConfig config;
  config.repetition_penalty = 2.0;
  EXPECT_EQ(Apply({4, -4, 0, 4}, config, {0, 0, 1, 2}), std::vector<float>({2, -8, 0, 4}));
  config.repetition_penalty = 0.5;
  EXPECT_EQ(Apply({4, -4, 0, 4}, config, {0, 0, 1, 2}), std::vector<float>({8, -2, 0, 4}));
}

TEST(LogitProcessor, BiasThenAdditiveThenRepetition) {
  GenerationConfig config;
  config.logit_bias = {{0, 3}};
  config.presence_penalty = 1;
  config.repetition_penalty = 2;
  // (-1 + 3 - 1) is positive only after the bias: divided.
  EXPECT_EQ(Apply({-1}, config, {0}), std::vector<float>({0.5}));
}

TEST(LogitProcessor, SaysWhetherThereIsSomethingToDo) {
  GenerationConfig config;
  TokenCounts none, some;
  some.Add(3);
  EXPECT_FALSE(HasLogitBiasOrPenalties(config, some.counts()));
  config.frequency_penalty = 0.1;
  EXPECT_FALSE(HasLogitBiasOrPenalties(config, none.counts()));
  EXPECT_TRUE(HasLogitBiasOrPenalties(config, some.counts()));
  config.frequency_penalty = 0;
  config.logit_bias = {{0, 1}};
  EXPECT_TRUE(HasLogitBiasOrPenalties(config, none.counts()));
}

TEST(LogitProcessor, ForbiddenStaysForbiddenAndFiniteStaysFinite) {
  GenerationConfig config;
  config.logit_bias = {{0, 100}};
  config.repetition_penalty = 1e-300;
  config.presence_penalty = -2;
  const std::vector<float> up = Apply({-kInf, 1, -1e30f}, config, {0, 1, 2});
  EXPECT_EQ(up[0], -kInf);
  EXPECT_TRUE(std::isfinite(up[1]));
  EXPECT_TRUE(std::isfinite(up[2]));
  config.repetition_penalty = 1e300;
  const std::vector<float> down = Apply({-kInf, 1, -1e30f}, config, {0, 1, 2});
  EXPECT_EQ(down[0], -kInf);
  EXPECT_TRUE(std::isfinite(down[1]));
  EXPECT_TRUE(std::isfinite(down[2]));
  EXPECT_TRUE(std::isnan(Apply({std::nanf("")}, config, {0})[0])) << "the sampler must see it";
}

TEST(LogitProcessor, TokensOutsideTheVocabularyAreABugOfOurs) {
  GenerationConfig config;
  config.logit_bias = {{3, 1}};
  EXPECT_THROW(Apply({1, 2, 3}, config), InternalError);
  config.logit_bias = {{-1, 1}};
  EXPECT_THROW(Apply({1, 2, 3}, config), InternalError);
  config.logit_bias.clear();
  config.presence_penalty = 1;
  EXPECT_THROW(Apply({1, 2, 3}, config, {3}), InternalError);
}

}  // namespace
}  // namespace mlc_native
