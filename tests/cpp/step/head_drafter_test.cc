// A draft head is fed each hidden state of its target once, with the token behind it, whatever the
// target computes when; then the guesses of the fake head are the target's own tokens.
#include <gtest/gtest.h>

#include <vector>

#include "step/head_drafter_fixture.h"

namespace mlc_native::testing {
namespace {

TEST_F(HeadDrafterTest, GuessesAreThoseOfTheHead) {
  Make();
  tokens_[0] = Prompt(20);
  EXPECT_TRUE(Guess(0, 3).empty()) << "nothing has been computed";
  Compute({{0, 0, 20}});
  EXPECT_EQ(Guess(0, 3), Next(0, 3));
  EXPECT_EQ(head_->num_rows(), 19 + 2) << "the token behind the last state is not known";
  tokens_[0].push_back(7);
  EXPECT_EQ(Guess(0, 5), Next(0, 5));
  EXPECT_EQ(head_->num_rows(), 19 + 2 + 1 + 4);
  EXPECT_EQ(drafter_->num_rows(), head_->num_rows());
  EXPECT_EQ(drafter_->num_forwards(), head_->num_forwards());
  EXPECT_TRUE(Guess(0, 5).empty()) << "without a new state there is no guess";
  EXPECT_EQ(head_->num_misaligned(), 0);
}

TEST_F(HeadDrafterTest, StatesOfRejectedGuessesAreNotFed) {
  Make();
  tokens_[0] = Prompt(20);
  Compute({{0, 0, 20}});
  tokens_[0].push_back(9);
  Guess(0, 4);
  // The target computes the last token and four guesses, of which one is right.
  std::vector<int32_t> real = tokens_[0];
  for (int32_t token : {11, 12, 13, 14}) tokens_[0].push_back(token);
  Compute({{0, 20, 5}});
  real.push_back(11);
  real.push_back(77);
  tokens_[0] = real;
  EXPECT_EQ(Guess(0, 3), Next(0, 3));
  Compute({{0, 22, 1}});
  tokens_[0].push_back(5);
  EXPECT_EQ(Guess(0, 2), Next(0, 2));
  EXPECT_EQ(head_->num_misaligned(), 0);
}

TEST_F(HeadDrafterTest, ChunksOfSeveralSequencesAreFedInSeveralForwards) {
  Make({.num_pages = 64, .max_rows = 16, .max_sequences = 2});
  for (int64_t id : {0, 1, 2}) tokens_[id] = Prompt(40, static_cast<int32_t>(id));
  for (int32_t position : {0, 10, 20, 30}) {
    Compute({{0, position, 4}, {1, position, 10}, {2, position, 10}});
    if (position == 30) tokens_[1].push_back(1), tokens_[2].push_back(2);
    drafter_->Propose({});
    Compute({{0, position + 4, 6}});
    if (position == 30) tokens_[0].push_back(3);
    drafter_->Propose({});
  }
  Compute({{0, 40, 1}, {1, 40, 1}, {2, 40, 1}});
  std::vector<std::vector<int32_t>> drafts(3);
  std::vector<BatchDrafter::Wish> wishes;
  for (int64_t id : {0, 1, 2}) {
    tokens_[id].push_back(7);
    wishes.push_back(
        {.sequence_id = id, .tokens = tokens_[id], .max_tokens = 1 + id, .drafts = &drafts[id]});
  }
  drafter_->Propose(wishes);
  for (int64_t id : {0, 1, 2}) EXPECT_EQ(drafts[id], Next(id, 1 + id)) << id;
  EXPECT_EQ(head_->num_misaligned(), 0);
}

TEST_F(HeadDrafterTest, StatesOfSequencesWithoutWishesAreFedInBulk) {
  Make();
  tokens_[0] = Prompt(20);
  Compute({{0, 0, 20}});
  tokens_[0].push_back(1);
  for (int32_t i = 0; i < 40; ++i) {
    drafter_->Propose({});
    Compute({{0, 20 + i, 1}});
    tokens_[0].push_back(i);
  }
  EXPECT_EQ(drafter_->num_forwards(), 3);
  EXPECT_EQ(drafter_->num_rows(), 20 + 2 * DraftHead::kBulk);
  tokens_[0].resize(57);  // some of what is kept is taken back, and computed again
  tokens_[0].push_back(5);
  Compute({{0, 57, 1}});
  tokens_[0].push_back(6);
  EXPECT_EQ(Guess(0, 4), Next(0, 4));
  EXPECT_EQ(head_->num_misaligned(), 0);
  EXPECT_EQ(drafter_->kv().length(0), 58);
}

TEST_F(HeadDrafterTest, WhatGoesOnFindsAllThatWasComputed) {
  Make();
  tokens_[0] = Prompt(40);
  Compute({{0, 0, 40}});
  tokens_[0].push_back(8);
  drafter_->Forget(0);  // feeds the last state, too
  drafter_->Forget(0);
  drafter_->Forget(7);
  drafter_->Audit();
  EXPECT_EQ(drafter_->kv().num_sequences(), 0);
  const int64_t rows = head_->num_rows();
  tokens_[1] = tokens_[0];
  tokens_[1].push_back(4);
  Compute({{1, 40, 2}});  // the target has the first 40 in its cache
  tokens_[1].push_back(6);
  EXPECT_EQ(Guess(1, 2), Next(1, 2));
  EXPECT_EQ(head_->num_rows() - rows, 2 + 1);
  EXPECT_EQ(head_->num_misaligned(), 0);
  EXPECT_EQ(drafter_->kv().length(1), 42);
}

TEST_F(HeadDrafterTest, WithoutTheFirstStatesItStartsWithThoseThatItSees) {
  Make();
  tokens_[0] = Prompt(40);
  Compute({{0, 30, 10}});
  tokens_[0].push_back(8);
  EXPECT_EQ(Guess(0, 3), Next(0, 3));
  EXPECT_EQ(drafter_->kv().length(0), 10);
  // A step was not watched.
  tokens_[0].insert(tokens_[0].end(), {1, 2, 3});
  Compute({{0, 43, 1}});
  tokens_[0].push_back(4);
  EXPECT_EQ(Guess(0, 3), Next(0, 3));
  EXPECT_EQ(drafter_->kv().length(0), 1);
  drafter_->Forget(0);
  tokens_[1] = tokens_[0];
  Compute({{1, 10, 5}});
  EXPECT_EQ(drafter_->kv().length(1), 0) << "nothing of it is cached";
  drafter_->Unwatch();
  EXPECT_TRUE(Guess(1, 1).empty());
  EXPECT_EQ(head_->num_misaligned(), 0);
}

TEST_F(HeadDrafterTest, TokensThatAreTakenBackAreReadAgain) {
  Make();
  tokens_[0] = Prompt(40);
  Compute({{0, 0, 40}});
  tokens_[0].push_back(8);
  Guess(0, 2);
  tokens_[0].resize(30);
  tokens_[0].insert(tokens_[0].end(), {1, 2, 3});
  Compute({{0, 30, 3}});
  tokens_[0].push_back(4);
  EXPECT_EQ(Guess(0, 3), Next(0, 3));
  EXPECT_EQ(head_->num_misaligned(), 1) << "the last row in front of them has read another token";
}

TEST_F(HeadDrafterTest, ForksGoOnFromTheirParent) {
  Make();
  tokens_[0] = Prompt(40);
  Compute({{0, 0, 40}});
  for (int64_t child : {1, 2, 3}) {
    tokens_[child] = tokens_[0];
    drafter_->Fork(0, child, tokens_[child]);
  }
  drafter_->Forget(0);
  std::vector<std::vector<int32_t>> drafts(4);
  std::vector<BatchDrafter::Wish> wishes;
  for (int64_t child : {1, 2, 3}) {
    tokens_[child].push_back(static_cast<int32_t>(child));
    wishes.push_back({.sequence_id = child,
                      .tokens = tokens_[child],
                      .max_tokens = 2,
                      .drafts = &drafts[child]});
  }
  drafter_->Propose(wishes);
  for (int64_t child : {1, 2, 3}) EXPECT_EQ(drafts[child], Next(child, 2)) << child;
  EXPECT_EQ(head_->num_rows(), 39 + 3 + 3);
  EXPECT_EQ(head_->num_misaligned(), 0);
}

TEST_F(HeadDrafterTest, BehindARestItStartsWithTheStatesThatItSees) {
  Make();
  tokens_[0] = tokens_[1] = Prompt(20);
  Compute({{0, 0, 20}});
  tokens_[0].push_back(1);
  drafter_->Rest(true);
  const BatchDrafter::WatchedSlice slice{.sequence_id = 1, .tokens = &tokens_[1], .num_rows = 20};
  EXPECT_TRUE(drafter_->Watch({&slice, 1}).rows.empty());
  EXPECT_TRUE(Guess(0, 2).empty());
  drafter_->Forget(1);
  EXPECT_EQ(head_->num_forwards(), 0);
  EXPECT_EQ(drafter_->kv().num_sequences(), 0);
  drafter_->Rest(false);
  tokens_[0].push_back(2);
  Compute({{0, 21, 1}});
  tokens_[0].push_back(3);
  EXPECT_EQ(Guess(0, 2), Next(0, 2));
  EXPECT_EQ(drafter_->kv().length(0), 1);
  EXPECT_EQ(head_->num_misaligned(), 0);
}

}  // namespace
}  // namespace mlc_native::testing
