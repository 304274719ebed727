#include "sampling/token_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>
#include <vector>

#include "support/token_mask.h"

namespace mlc_native {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kVocabSize = 70;
constexpr int32_t kEos = 69;
const std::vector<int32_t> kPrompt = {3, 1, 2};

// The tokens that stay allowed of those in `before`, all by default.
std::vector<int32_t> Allowed(const GenerationConfig& config, std::vector<int32_t> generated,
                             std::vector<int32_t> before = {}) {
  std::vector<int32_t> mask(TokenMaskWords(kVocabSize), before.empty() ? -1 : 0);
  for (int32_t id : before) SetTokenBit(mask, id, true);
  const int32_t eos[] = {kEos};
  std::vector<int32_t> tokens = kPrompt;
  tokens.insert(tokens.end(), generated.begin(), generated.end());
  ForbidByLimits(config, eos, {tokens, std::ssize(kPrompt), std::ssize(generated)}, mask);
  std::vector<int32_t> allowed;
  for (int32_t id = 0; id < kVocabSize; ++id) {
    if (HasTokenBit(mask, id)) allowed.push_back(id);
  }
  return allowed;
}

TEST(TokenLimits, NothingIsLimitedByDefault) {
  const GenerationConfig config;
  EXPECT_FALSE(LimitsTokens(config, 0));
  EXPECT_FALSE(LimitsDependOnTokens(config));
  EXPECT_EQ(std::ssize(Allowed(config, {1, 2})), kVocabSize);
}

TEST(TokenLimits, MinTokensForbidsTheEndUntilThen) {
  GenerationConfig config;
  config.min_tokens = 2;
  config.stop_token_ids = {3, 40};
  const std::vector<int32_t> before = {3, 4, 40, kEos};
  EXPECT_TRUE(LimitsTokens(config, 1));
  EXPECT_FALSE(LimitsTokens(config, 2));
  EXPECT_THAT(Allowed(config, {}, before), ElementsAre(4));
  EXPECT_THAT(Allowed(config, {4}, before), ElementsAre(4));
  EXPECT_THAT(Allowed(config, {4, 4}, before), ElementsAre(3, 4, 40, kEos));
  config.debug_config.ignore_eos = true;  // then it ends nothing
  EXPECT_THAT(Allowed(config, {}, before), ElementsAre(4, kEos));
}

TEST(TokenLimits, OnlyAllowedTokensThatWereAllowedBefore) {
  GenerationConfig config;
  config.allowed_token_ids = {5, 33, 5, 64};
  EXPECT_THAT(Allowed(config, {}), ElementsAre(5, 33, 64));
  EXPECT_THAT(Allowed(config, {5}, {33, 34}), ElementsAre(33));
  config.min_tokens = 1;
  config.stop_token_ids = {33};
  EXPECT_THAT(Allowed(config, {}), ElementsAre(5, 64));
  EXPECT_THAT(Allowed(config, {}, {33}), IsEmpty());
}

// Against a search of the answer for each bad sequence.
TEST(TokenLimits, ABadSequenceIsNeverCompleted) {
  std::mt19937 random(11);
  const auto token = [&] { return static_cast<int32_t>(random() % 4); };
  for (int run = 0; run < 300; ++run) {
    GenerationConfig config;
    config.bad_words.resize(1 + random() % 4);
    for (auto& bad : config.bad_words) {
      for (size_t i = 1 + random() % 3; i > 0; --i) bad.push_back(token());
    }
    std::vector<int32_t> generated(random() % 6);
    for (int32_t& id : generated) id = token();
    std::vector<int32_t> expected;
    for (int32_t next = 0; next < 4; ++next) {
      std::vector<int32_t> answer = generated;
      answer.push_back(next);
      const bool completes = std::ranges::any_of(config.bad_words, [&](const auto& bad) {
        return answer.size() >= bad.size() && std::equal(bad.rbegin(), bad.rend(), answer.rbegin());
      });
      if (!completes) expected.push_back(next);
    }
    EXPECT_EQ(Allowed(config, generated, {0, 1, 2, 3}), expected);
  }
}

TEST(TokenLimits, OnlySequencesOfSeveralTokensDependOnTheAnswer) {
  GenerationConfig config;
  config.bad_words = {{1}, {2}};
  EXPECT_TRUE(LimitsTokens(config, 0));
  EXPECT_FALSE(LimitsDependOnTokens(config));
  config.bad_words.push_back({1, 2});
  EXPECT_TRUE(LimitsDependOnTokens(config));
}

// Against a count of the sequences that there would be.
TEST(TokenLimits, NoSequenceComesTwice) {
  std::mt19937 random(12);
  int num_forbidden = 0;
  for (int run = 0; run < 300; ++run) {
    GenerationConfig config;
    config.no_repeat_ngram_size = 1 + static_cast<int64_t>(random() % 4);
    const auto size = static_cast<size_t>(config.no_repeat_ngram_size);
    std::vector<int32_t> generated(random() % 12);
    for (int32_t& id : generated) id = static_cast<int32_t>(random() % 4);
    std::vector<int32_t> expected;
    for (int32_t next = 0; next < 4; ++next) {
      std::vector<int32_t> all = kPrompt;
      all.insert(all.end(), generated.begin(), generated.end());
      all.push_back(next);
      std::map<std::vector<int32_t>, int> counts;
      for (size_t i = 0; i + size <= all.size(); ++i) {
        ++counts[std::vector<int32_t>(all.begin() + i, all.begin() + i + size)];
      }
      const bool repeats =
          all.size() >= size && counts[std::vector<int32_t>(all.end() - size, all.end())] > 1;
      repeats ? void(++num_forbidden) : expected.push_back(next);
    }
    EXPECT_TRUE(LimitsTokens(config, 0));
    EXPECT_TRUE(LimitsDependOnTokens(config));
    EXPECT_EQ(Allowed(config, generated, {0, 1, 2, 3}), expected) << size;
  }
  EXPECT_GT(num_forbidden, 300);
}

TEST(TokenLimits, NoLongSequenceComesTwice) {
  std::mt19937 random(13);
  int num_forbidden = 0;
  for (int run = 0; run < 2000; ++run) {
    std::vector<int32_t> tokens(1 + random() % 40);
    for (int32_t& id : tokens) id = random() % 8 == 0 ? 1 : 0;
    GenerationConfig config;
    config.no_repeat_ngram_size = 1 + static_cast<int64_t>(random() % 20);
    const auto num_before = static_cast<size_t>(config.no_repeat_ngram_size - 1);
    std::vector<int32_t> expected = {-1};
    for (size_t next = num_before; next < tokens.size(); ++next) {
      const auto end = tokens.begin() + static_cast<int64_t>(next);
      if (std::equal(end - static_cast<int64_t>(num_before), end,
                     tokens.end() - static_cast<int64_t>(num_before))) {
        SetTokenBit(expected, tokens[next], false);
        ++num_forbidden;
      }
    }
    std::vector<int32_t> mask = {-1};
    ForbidByLimits(config, {}, {tokens, std::ssize(tokens), 0}, mask);
    EXPECT_EQ(mask, expected) << config.no_repeat_ngram_size;
  }
  EXPECT_GT(num_forbidden, 2000);
}

// Comparing at each place would take minutes.
TEST(TokenLimits, ALongSequenceIsLookedForInLinearTime) {
  GenerationConfig config;
  config.no_repeat_ngram_size = int64_t{1} << 19;
  std::vector<int32_t> tokens(size_t{1} << 20, 7);
  tokens.back() = 9;
  std::vector<int32_t> mask = {-1};
  ForbidByLimits(config, {}, {tokens, std::ssize(tokens), 0}, mask);
  EXPECT_THAT(mask, ElementsAre(-1));
  tokens.back() = 7;
  ForbidByLimits(config, {}, {tokens, std::ssize(tokens), 0}, mask);
  EXPECT_FALSE(HasTokenBit(mask, 7));
}

TEST(TokenLimits, ASequenceLongerThanTheTokensForbidsNothing) {
  GenerationConfig config;
  for (const int64_t size : {int64_t{5}, std::numeric_limits<int64_t>::max()}) {
    config.no_repeat_ngram_size = size;
    EXPECT_EQ(std::ssize(Allowed(config, {3})), kVocabSize);
  }
}

}  // namespace
}  // namespace mlc_native
