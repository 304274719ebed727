#include "request/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "support/error.h"
#include "tokenizer/stop_str_handler.h"

namespace mlc_native {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const RequestLimits kLimits{.vocab_size = 50, .max_num_sequence = 4, .max_sequence_length = 8};

RequestPtr Create(std::vector<int32_t> token_ids, GenerationConfig config = {}) {
  return CreateRequest("r", {TokenData{std::move(token_ids)}}, std::move(config), kLimits);
}

std::string ErrorOf(const std::string& field, std::vector<int32_t> token_ids,
                    GenerationConfig config = {}) {
  try {
    Create(std::move(token_ids), std::move(config));
  } catch (const InvalidRequest& e) {
    EXPECT_EQ(e.field(), field);
    return e.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

TEST(CreateRequest, FlattensInputs) {
  const RequestPtr request =
      CreateRequest("r", {TokenData{{1, 2}}, TokenData{{}}, TokenData{{3}}}, {}, kLimits);
  EXPECT_THAT(request->prompt_token_ids, ElementsAre(1, 2, 3));
  EXPECT_EQ(request->prompt_len(), 3);
  EXPECT_EQ(request->inputs.size(), 3u);
}

TEST(CreateRequest, RefusesAnEmptyPrompt) {
  EXPECT_THAT(ErrorOf("prompt", {}), HasSubstr("at least 1 token"));
  EXPECT_THROW(CreateRequest("r", {}, {}, kLimits), InvalidRequest);
}

TEST(CreateRequest, RefusesAnEmptyId) {
  EXPECT_THROW(CreateRequest("", {TokenData{{1}}}, {}, kLimits), InvalidRequest);
}

// A request that would break a step is refused on the thread of its caller.
TEST(CreateRequest, RefusesTokensOutOfTheVocabularyWithIndexAndValue) {
  EXPECT_THAT(ErrorOf("prompt", {1, 50}),
              HasSubstr("Token 1 of the prompt must be in [0, 50), got 50"));
  EXPECT_THAT(ErrorOf("prompt", {-1}),
              HasSubstr("Token 0 of the prompt must be in [0, 50), got -1"));
}

TEST(CreateRequest, RefusesALongPromptWithBothNumbers) {
  EXPECT_NO_THROW(Create(std::vector<int32_t>(8, 1)));
  EXPECT_EQ(ErrorOf("prompt", std::vector<int32_t>(9, 1)),
            "Request prompt has 9 tokens in total, larger than the model input length limit 8.");
}

TEST(CreateRequest, RefusesText) {
  try {
    CreateRequest("r", {TokenData{{1}}, TextData{"hello"}}, {}, kLimits);
    FAIL();
  } catch (const InvalidRequest& e) {
    EXPECT_THAT(e.what(), HasSubstr("inputs[1] is text; tokenize it first"));
  }
}

TEST(CreateRequest, TakesMoreAnswersThanTheEngineRunsButNotAnyNumber) {
  GenerationConfig config;
  config.n = 1024;
  EXPECT_NO_THROW(Create({1}, config));
  config.n = 1025;
  EXPECT_THAT(ErrorOf("n", {1}, config), HasSubstr("[1, 1024]"));
}

TEST(CreateRequest, RefusesAPinThatHasNoRoom) {
  RequestLimits limits = kLimits;
  limits.max_sequence_length = 64;
  GenerationConfig config;
  config.debug_config.pinned_system_prompt = true;
  const auto create = [&](int64_t length) {
    CreateRequest("r", {TokenData{std::vector<int32_t>(length, 1)}}, config, limits);
  };
  const auto error = [&](int64_t length) {
    try {
      create(length);
    } catch (const InvalidRequest& refused) {
      return refused.field() + ": " + refused.what();
    }
    return std::string("created");
  };
  EXPECT_THAT(error(1), HasSubstr("prefix_cache_mode: Pins need \"prefix_cache_mode\" \"radix\""));
  limits.max_pinned_length = 32;
  EXPECT_EQ(error(32), "created");
  EXPECT_THAT(error(33), HasSubstr("prompt: A prompt of 33 tokens cannot be pinned: there is room "
                                   "for 32 (whole pages of \"max_total_sequence_length\" less"));
  config.debug_config.pinned_system_prompt = false;
  EXPECT_EQ(error(33), "created");
}

TEST(CreateRequest, ChecksTheGenerationConfig) {
  GenerationConfig config;
  config.top_p = 2;
  EXPECT_THAT(ErrorOf("top_p", {1}, config), HasSubstr("got 2"));
}

TEST(CreateRequest, KeepsAGivenSeedAndDrawsAMissingOne) {
  GenerationConfig config;
  config.seed = 0;
  EXPECT_EQ(Create({1}, config)->generation_cfg.seed, 0);
  std::set<int64_t> seeds;
  for (int i = 0; i < 8; ++i) seeds.insert(Create({1})->generation_cfg.seed.value());
  EXPECT_EQ(seeds.size(), 8u);
  EXPECT_GE(*seeds.begin(), 0);
}

// config.cc cannot include the tokenizer, so the shared limits are held together here.
TEST(CreateRequest, StopStringLimitsAreThoseOfTheStopHandler) {
  GenerationConfig config;
  config.stop_strs.assign(StopStrSet::kMaxStopStrs, "x");
  EXPECT_NO_THROW(Create({1}, config));
  config.stop_strs.emplace_back("x");
  EXPECT_THROW(Create({1}, config), InvalidRequest);
  config.stop_strs = {std::string(StopStrSet::kMaxTotalBytes, 'x')};
  EXPECT_NO_THROW(Create({1}, config));
  config.stop_strs[0] += 'x';
  EXPECT_THROW(Create({1}, config), InvalidRequest);
}

}  // namespace
}  // namespace mlc_native
