#include "sampling/token_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "sampling/token_mask.h"

namespace mlc_native {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kVocabSize = 70;
constexpr int32_t kEos = 69;

// The tokens that stay allowed of those in `before`, all by default.
std::vector<int32_t> Allowed(const GenerationConfig& config, std::vector<int32_t> generated,
                             std::vector<int32_t> before = {}) {
  std::vector<int32_t> mask(TokenMaskWords(kVocabSize), before.empty() ? -1 : 0);
  for (int32_t id : before) SetTokenBit(mask, id, true);
  const int32_t eos[] = {kEos};
  ForbidByLimits(config, eos, std::ssize(generated), mask);
  std::vector<int32_t> allowed;
  for (int32_t id = 0; id < kVocabSize; ++id) {
    if (HasTokenBit(mask, id)) allowed.push_back(id);
  }
  return allowed;
}

TEST(TokenLimits, NothingIsLimitedByDefault) {
  const GenerationConfig config;
  EXPECT_FALSE(LimitsTokens(config, 0));
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

}  // namespace
}  // namespace mlc_native
