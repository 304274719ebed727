#include "request/input_row_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error.h"
#include "testing/error_message.h"

namespace mlc_native {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const RequestLimits kLimits{
    .vocab_size = 100, .max_num_sequence = 4, .max_sequence_length = 64, .input_size = 2};

EmbeddingData Of(std::vector<float> values) {
  const int64_t num_rows = std::ssize(values) / 2;
  return {.num_rows = num_rows,
          .values = std::make_shared<const std::vector<float>>(std::move(values))};
}

RequestPtr Make(InputRowIds& ids, std::vector<Data> inputs,
                std::optional<int64_t> truncate = std::nullopt) {
  GenerationConfig config;
  config.truncate_prompt_tokens = truncate;
  return CreateRequest("a", std::move(inputs), config, kLimits,
                       [&](Request* request) { ids.ResolveFor(request); });
}

std::vector<int32_t> IdsOf(const RequestPtr& request) {
  std::vector<int32_t> ids;
  for (const int32_t id : request->prompt_token_ids) {
    ids.push_back(IsInputRow(id) ? id - kFirstInputRow : -1);
  }
  return ids;
}

TEST(InputRowIds, AreTheSameForTheSameRowsOnly) {
  const auto ids = std::make_shared<InputRowIds>();
  EXPECT_THAT(IdsOf(Make(*ids, {TokenData{{5, 6}}, Of({1, 2, 3, 4}), TokenData{{7}}})),
              ElementsAre(-1, -1, 0, 1, -1));
  EXPECT_THAT(IdsOf(Make(*ids, {Of({1, 2, 3, 5})})), ElementsAre(2, 3));
  EXPECT_THAT(IdsOf(Make(*ids, {Of({1, 2, 3, 4}), Of({1, 2}), Of({1, 2, 3, 4})})),
              ElementsAre(0, 1, 4, 0, 1));
}

TEST(InputRowIds, OfWhatTruncationLeavesAreItsOwn) {
  const auto ids = std::make_shared<InputRowIds>();
  Make(*ids, {Of({1, 2, 3, 4, 5, 6})});
  const RequestPtr cut = Make(*ids, {Of({9, 9}), Of({1, 2, 3, 4, 5, 6}), TokenData{{7}}}, 3);
  EXPECT_THAT(IdsOf(cut), ElementsAre(3, 4, -1));
  ASSERT_EQ(cut->prompt_rows.size(), 1u);
  EXPECT_EQ(cut->prompt_rows[0].begin, 0);
  EXPECT_EQ(cut->prompt_rows[0].num_rows, 2);
  EXPECT_EQ(cut->prompt_rows[0].first_value, 2);
  EXPECT_THAT(IdsOf(Make(*ids, {Of({3, 4, 5, 6})})), ElementsAre(3, 4));
}

TEST(InputRowIds, BeginARoundWhenTheyAreGone) {
  const auto ids = std::make_shared<InputRowIds>(InputRowIds::Options{.num_ids = 4});
  const RequestPtr first = Make(*ids, {Of({1, 2, 3, 4})});
  EXPECT_THAT(IdsOf(Make(*ids, {Of({5, 6})})), ElementsAre(2));
  const RequestPtr next = Make(*ids, {Of({7, 8, 9, 9})});
  EXPECT_THAT(IdsOf(next), ElementsAre(0, 1));
  EXPECT_NE(next->cache_space(), first->cache_space());
  EXPECT_EQ(first->cache_space(), CacheSpace());
  // What is known of the round before is not.
  const RequestPtr again = Make(*ids, {Of({1, 2, 3, 4})});
  EXPECT_THAT(IdsOf(again), ElementsAre(2, 3));
  EXPECT_EQ(again->cache_space(), next->cache_space());
}

TEST(InputRowIds, ForgetsWhatWasNotAskedForLongest) {
  const auto ids = std::make_shared<InputRowIds>(InputRowIds::Options{.max_remembered = 2});
  Make(*ids, {Of({1, 1})});
  Make(*ids, {Of({2, 2})});
  Make(*ids, {Of({1, 1})});
  Make(*ids, {Of({3, 3})});  // in place of {2, 2}
  EXPECT_THAT(IdsOf(Make(*ids, {Of({1, 1})})), ElementsAre(0));
  EXPECT_THAT(IdsOf(Make(*ids, {Of({2, 2})})), ElementsAre(3));
}

TEST(InputRowIds, AreOfOneEngine) {
  const auto ids = std::make_shared<InputRowIds>();
  const auto others = std::make_shared<InputRowIds>();
  const RequestPtr request = Make(*ids, {Of({1, 2})});
  ids->Check(*request);
  EXPECT_THAT(testing::Refusal([&] { others->Check(*request); }),
              HasSubstr("not created for this model"));
  others->Check(*Make(*ids, {TokenData{{1}}}));
}

TEST(RequestRows, AreRefusedIfTheyAreWrong) {
  const auto ids = std::make_shared<InputRowIds>();
  const auto message = [&](EmbeddingData data) {
    return testing::Refusal([&] { Make(*ids, {TokenData{{1}}, std::move(data)}); });
  };
  EXPECT_THAT(
      message({.num_rows = 2, .values = Of({1, 2}).values}),
      HasSubstr("inputs[1] must have 2 numbers per row, the model's hidden size, got 2 in 2"));
  EXPECT_THAT(message({.num_rows = 1, .values = Of({1, 2, 3}).values}), HasSubstr("got 3 in 1"));
  EXPECT_THAT(message({.num_rows = 0, .values = nullptr}), HasSubstr("at least 1 row"));
  EXPECT_THAT(message({.num_rows = 1, .values = nullptr}), HasSubstr("got 0 in 1"));
  EXPECT_THAT(message(Of({1, 2, 3, std::numeric_limits<float>::infinity()})),
              HasSubstr("must be finite, row 1 is not"));
}

TEST(RequestRows, AreRefusedWhereTokensAreNeeded) {
  const auto message = [&](const GenerationConfig& config, RequestLimits limits = kLimits) {
    return testing::Refusal([&] { CreateRequest("a", {Of({1, 2})}, config, limits); });
  };
  GenerationConfig config;
  config.prompt_logprobs = 0;
  EXPECT_THAT(message(config), HasSubstr("\"prompt_logprobs\" needs a prompt of tokens"));
  RequestLimits limits = kLimits;
  limits.input_size = 0;
  EXPECT_THAT(message({}, limits), HasSubstr("the model takes token ids only"));
}

}  // namespace
}  // namespace mlc_native
