// The guesses of a draft model are its own greedy continuation, whatever it has computed before.
#include "step/draft_model.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "fake_model/fake_model.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {
namespace {

class DraftModelTest : public ::testing::Test {
 protected:
  void Make(const DraftModel::Sizes& sizes, const FakeModelOptions& options = {}) {
    options_ = options;
    auto model = std::make_unique<FakeModel>(options);
    model_ = model.get();
    drafter_ = std::make_unique<DraftModel>(std::move(model), sizes);
  }

  std::vector<int32_t> Guess(int64_t id, const std::vector<int32_t>& tokens, int64_t count,
                             int64_t space = 0) {
    std::vector<int32_t> drafts;
    const DraftModel::Wish wish{.sequence_id = id,
                                .space = space,
                                .tokens = tokens,
                                .max_tokens = count,
                                .drafts = &drafts};
    drafter_->Propose({&wish, 1});
    drafter_->Audit();
    return drafts;
  }

  std::vector<int32_t> Greedy(const std::vector<int32_t>& tokens, int64_t count) const {
    return Oracle(options_, tokens, count);
  }

  static constexpr DraftModel::Sizes kRoomy{.num_pages = 64, .max_rows = 64, .max_sequences = 8};
  FakeModelOptions options_;
  FakeModel* model_ = nullptr;
  std::unique_ptr<DraftModel> drafter_;
};

TEST_F(DraftModelTest, GuessesAreGreedy) {
  Make(kRoomy);
  for (const int64_t count : {1, 2, 7, 10}) {
    EXPECT_EQ(Guess(count, Prompt(20, count), count), Greedy(Prompt(20, count), count));
  }
  EXPECT_EQ(drafter_->num_forwards(), 1 + 2 + 7 + 10);
}

TEST_F(DraftModelTest, OnlyWhatDiffersIsComputedAgain) {
  Make(kRoomy);
  std::vector<int32_t> tokens = Prompt(40);
  std::vector<int32_t> drafts = Guess(0, tokens, 5);
  // Three guesses were right, the target has drawn something else then.
  tokens.insert(tokens.end(), drafts.begin(), drafts.begin() + 3);
  tokens.push_back(drafts[3] == 7 ? 8 : 7);
  int64_t rows = model_->num_rows();
  EXPECT_EQ(Guess(0, tokens, 4), Greedy(tokens, 4));
  EXPECT_EQ(model_->num_rows() - rows, 1 + 3);
  // All were right.
  drafts = Guess(0, tokens, 3);
  tokens.insert(tokens.end(), drafts.begin(), drafts.end());
  tokens.push_back(9);
  rows = model_->num_rows();
  EXPECT_EQ(Guess(0, tokens, 2), Greedy(tokens, 2));
  EXPECT_EQ(model_->num_rows() - rows, 2 + 1) << "the last guess was not fed, nor token 9";
  // The target has lost tokens.
  tokens.resize(30);
  EXPECT_EQ(Guess(0, tokens, 2), Greedy(tokens, 2));
}

TEST_F(DraftModelTest, SequencesShareForwards) {
  Make(kRoomy);
  std::vector<std::vector<int32_t>> prompts, drafts(4);
  std::vector<DraftModel::Wish> wishes;
  for (int64_t i = 0; i < 4; ++i) prompts.push_back(Prompt(5 + i, i));
  for (int64_t i = 0; i < 4; ++i) {
    wishes.push_back(
        {.sequence_id = i, .tokens = prompts[i], .max_tokens = 2 + i, .drafts = &drafts[i]});
  }
  drafter_->Propose(wishes);
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(drafts[i], Greedy(prompts[i], 2 + i)) << i;
  EXPECT_EQ(drafter_->num_forwards(), 5);
  EXPECT_EQ(model_->max_batch(), 4);
}

TEST_F(DraftModelTest, LongPromptsArePrefilledInChunks) {
  Make({.num_pages = 64, .max_rows = 32, .max_sequences = 4});
  const std::vector<int32_t> prompt = Prompt(100);
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(Guess(0, prompt, 3).empty()) << call;
  EXPECT_EQ(Guess(0, prompt, 3), Greedy(prompt, 3));
}

TEST_F(DraftModelTest, AnEndedSequenceIsFoundByItsFollowUp) {
  Make(kRoomy);
  std::vector<int32_t> tokens = Prompt(50);
  Guess(0, tokens, 2);
  drafter_->Forget(0);
  drafter_->Forget(0);
  drafter_->Forget(5);
  drafter_->Audit();
  tokens.push_back(3);
  const int64_t rows = model_->num_rows();
  EXPECT_EQ(Guess(0, tokens, 1), Greedy(tokens, 1));
  EXPECT_EQ(model_->num_rows() - rows, 1);
  // Another space shares nothing.
  EXPECT_EQ(Guess(1, tokens, 1, 7), Greedy(tokens, 1));
  EXPECT_EQ(model_->num_rows() - rows, 1 + 51);
}

TEST_F(DraftModelTest, WithoutPagesThereAreNoGuesses) {
  Make({.num_pages = 4, .max_rows = 64, .max_sequences = 4});
  EXPECT_EQ(Guess(0, Prompt(40), 2).size(), 2);
  EXPECT_TRUE(Guess(1, Prompt(20, 1), 2).empty());
  drafter_->Forget(0);  // its pages are cached now, and the cache gives way
  EXPECT_EQ(Guess(1, Prompt(20, 1), 2), Greedy(Prompt(20, 1), 2));
  EXPECT_TRUE(Guess(2, Prompt(65), 1).empty()) << "never fits";
}

TEST_F(DraftModelTest, WhatTheModelCannotReadGetsNoGuesses) {
  FakeModelOptions options;
  options.vocab_size = 100;
  options.context_window_size = 24;
  Make(kRoomy, options);
  EXPECT_EQ(Guess(0, std::vector<int32_t>(20, 99), 5).size(), 5);
  EXPECT_TRUE(Guess(0, std::vector<int32_t>(20, 99), 6).empty()) << "25 tokens";
  EXPECT_TRUE(Guess(1, {1, 2, 100}, 2).empty());
  EXPECT_EQ(Guess(1, {1, 2, 3}, 2).size(), 2);
}

TEST_F(DraftModelTest, AFailureForgetsItsSequences) {
  FakeModelOptions options;
  options.fail_at_forward = {3};
  Make(kRoomy, options);
  const std::vector<int32_t> tokens = Prompt(20);
  EXPECT_EQ(Guess(0, tokens, 1).size(), 1);
  EXPECT_THROW(Guess(0, tokens, 4), std::runtime_error);
  drafter_->Audit();
  EXPECT_EQ(drafter_->kv().num_sequences(), 0);
  EXPECT_EQ(Guess(0, tokens, 4), Greedy(tokens, 4));
}

TEST_F(DraftModelTest, ADeviceComputesTheNextForwardBeforeTheGuessIsKnown) {
  FakeModelOptions options;
  options.run_ahead = true;
  Make(kRoomy, options);
  std::string calls;
  model_->set_on_forward([&](const ForwardBatch&) { calls += 'F'; });
  model_->steps().set_on_collect([&] { calls += 'C'; });
  EXPECT_EQ(Guess(0, Prompt(20), 4), Greedy(Prompt(20), 4));
  EXPECT_EQ(calls, "FFCFCFCC");
}

TEST_F(DraftModelTest, ARowWithoutNumbersEndsTheGuesses) {
  const std::vector<int32_t> tokens = Prompt(20);
  FakeModelOptions options;
  const std::vector<int32_t> greedy = Oracle(options, tokens, 3);
  options.nan_token = greedy[1];
  Make(kRoomy, options);
  EXPECT_EQ(Guess(0, tokens, 3), (std::vector<int32_t>{greedy[0], greedy[1]}));
}

}  // namespace
}  // namespace mlc_native::testing
