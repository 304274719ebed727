// The parts that drafts are made with: the index, the drafters, the choice of a length.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "draft/draft_length.h"
#include "draft/drafter.h"
#include "draft/sequence_drafts.h"
#include "draft/token_index.h"

namespace mlc_native {
namespace {

using Tokens = std::vector<int32_t>;

// The length of the match of the end of `context` at `position`, at most max_match.
int64_t MatchAt(const Tokens& text, int64_t position, const Tokens& context, int64_t max_match) {
  int64_t length = 0;
  while (length < max_match && length < position && length < std::ssize(context) &&
         text[position - 1 - length] == context[context.size() - 1 - length]) {
    ++length;
  }
  return length;
}

TEST(TokenIndex, FindsOnlyWhatMatchesInATextThatLosesTokens) {
  std::mt19937 random(1);
  int num_found = 0;
  for (int round = 0; round < 200; ++round) {
    const int64_t min_match = 1 + random() % 3;
    const int64_t max_match = min_match + random() % 4;
    TokenIndex index(min_match, max_match);
    Tokens text;
    for (int step = 0; step < 60; ++step) {
      text.push_back(static_cast<int32_t>(random() % (2 + round % 40)));
      if (random() % 12 == 0) text.resize(random() % text.size() + 1);
      index.Extend(text);
      const auto found = index.Find(text, text, std::ssize(text));
      if (!found) continue;
      ++num_found;
      ASSERT_LT(*found, std::ssize(text));
      ASSERT_GE(MatchAt(text, *found, text, max_match), min_match);
    }
  }
  EXPECT_GT(num_found, 1000);
}

TEST(TokenIndex, MissesNoMatchOfATextThatOnlyGrows) {
  TokenIndex index(2, 5);
  Tokens text;
  for (int32_t i = 0; i < 3000; ++i) text.push_back(i);
  for (int32_t i = 0; i < 500; ++i) {
    text.push_back(100 + 3 * i);
    text.push_back(101 + 3 * i);
    index.Extend(text);
    EXPECT_EQ(index.Find(text, text, 0), 102 + 3 * i);
  }
}

TEST(TokenIndex, TakesTheNearestOfEquallyLongMatches) {
  const Tokens text = {7, 8, 1, 7, 8, 2, 7, 8, 3, 9};
  TokenIndex index(2, 4);
  index.Extend(text);
  const Tokens context = {5, 7, 8};
  EXPECT_EQ(index.Find(text, context, 0), 2);
  EXPECT_EQ(index.Find(text, context, 5), 5);
  EXPECT_EQ(index.Find(text, context, 9), 8);
  EXPECT_EQ(index.Find(text, Tokens{8, 7}, 0), std::nullopt);
  EXPECT_EQ(index.Find(text, Tokens{7}, 0), std::nullopt);
}

Tokens Guess(SequenceDrafts& drafts, const Tokens& tokens, int64_t prompt_len, int64_t max_tokens) {
  drafts.Propose(tokens, prompt_len, max_tokens);
  return drafts.proposal();
}

TEST(Lookup, GoesOnAsBefore) {
  EngineConfig engine;
  engine.speculative_mode = SpeculativeMode::kNGram;
  const GenerationConfig request;
  SequenceDrafts drafts({.engine = engine, .request = request}, nullptr);
  EXPECT_EQ(Guess(drafts, {1, 2, 3, 4, 1, 2}, 6, 2), Tokens({3, 4}));
  EXPECT_EQ(Guess(drafts, {1, 2, 3, 4, 1, 2, 9}, 6, 2), Tokens());
  // A text that repeats itself, for longer than it is.
  EXPECT_EQ(Guess(drafts, {1, 2, 3, 4, 1, 2, 9, 5, 6, 5, 6}, 6, 7), Tokens({5, 6, 5, 6, 5, 6, 5}));
  EXPECT_FALSE(drafts.is_prediction());
}

TEST(Prediction, IsFollowedAndFoundAgain) {
  const EngineConfig engine;
  GenerationConfig request;
  request.prediction = {10, 11, 12, 13, 14, 15, 16, 17};
  SequenceDrafts drafts({.engine = engine, .request = request}, nullptr);
  Tokens tokens = {1, 2};
  EXPECT_EQ(Guess(drafts, tokens, 2, 3), Tokens({10, 11, 12}));
  EXPECT_TRUE(drafts.is_prediction());
  tokens.insert(tokens.end(), {10, 11});
  EXPECT_EQ(Guess(drafts, tokens, 2, 10), Tokens({12, 13, 14, 15, 16, 17}));
  tokens.insert(tokens.end(), {99, 98});
  EXPECT_EQ(Guess(drafts, tokens, 2, 10), Tokens());
  tokens.insert(tokens.end(), {14, 15});
  EXPECT_EQ(Guess(drafts, tokens, 2, 10), Tokens({16, 17}));
  tokens.insert(tokens.end(), {16, 17, 18});
  EXPECT_EQ(Guess(drafts, tokens, 2, 10), Tokens());
  tokens.resize(2);  // all of it was taken back
  EXPECT_EQ(Guess(drafts, tokens, 2, 1), Tokens({10}));
}

TEST(StepCosts, AreALineOverTheRows) {
  StepCosts costs;
  EXPECT_EQ(costs.RowShare(1), 0);
  for (int i = 0; i < 100; ++i) costs.Observe(4, 0.010);
  EXPECT_EQ(costs.RowShare(4), 0) << "a price that is not known is tried";
  for (int i = 0; i < 100; ++i) costs.Observe(1 + i % 8, 0.008 + 0.0005 * (1 + i % 8));
  EXPECT_NEAR(costs.RowShare(4), 0.05, 0.001);
  EXPECT_NEAR(costs.RowShare(84), 0.01, 0.001);
}

TEST(AcceptanceRate, ChoosesLongDraftsWhileTheyAreRight) {
  AcceptanceRate acceptance;
  for (int i = 0; i < 50; ++i) acceptance.Update(true);
  EXPECT_EQ(acceptance.ChooseLength(0.5, 10), 10);
  EXPECT_EQ(acceptance.ChooseLength(0.5, 4), 4);
  EXPECT_EQ(acceptance.ChooseLength(1.5, 10), 0);
  for (int i = 0; i < 50; ++i) acceptance.Update(i % 2 == 1);
  EXPECT_EQ(acceptance.ChooseLength(0.2, 10), 2);
  for (int i = 0; i < 50; ++i) acceptance.Update(false);
  int64_t num_tried = 0;
  for (int i = 0; i < 80; ++i) num_tried += acceptance.ChooseLength(0, 10);
  EXPECT_EQ(num_tried, 10) << "now and then";
}

}  // namespace
}  // namespace mlc_native
