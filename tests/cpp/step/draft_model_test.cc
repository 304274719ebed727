// The guesses of a draft model are its own greedy continuation, whatever it has computed before,
// and whether it reads pages or states of recurrent layers. The fake model throws where a state is
// not that of the tokens before.
#include "step/draft_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "fake_model/fake_model.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {
namespace {

class DraftModelTest : public ::testing::TestWithParam<bool> {
 protected:
  void Make(DraftModel::Sizes sizes, const FakeModelOptions& options = {}) {
    options_ = options;
    options_.is_recurrent = GetParam();
    if (!GetParam()) sizes.num_slots = 0;
    auto model = std::make_unique<FakeModel>(options_);
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
    EXPECT_EQ(model_->num_wrong_states(), 0);
    return drafts;
  }

  // The guesses for several sequences in one call.
  std::vector<std::vector<int32_t>> GuessAll(const std::vector<std::vector<int32_t>>& sequences,
                                             int64_t count) {
    std::vector<std::vector<int32_t>> drafts(sequences.size());
    std::vector<DraftModel::Wish> wishes;
    for (size_t i = 0; i < sequences.size(); ++i) {
      wishes.push_back({.sequence_id = static_cast<int64_t>(i),
                        .tokens = sequences[i],
                        .max_tokens = count,
                        .drafts = &drafts[i]});
    }
    drafter_->Propose(wishes);
    drafter_->Audit();
    return drafts;
  }

  std::vector<int32_t> Greedy(const std::vector<int32_t>& tokens, int64_t count) const {
    return Oracle(options_, tokens, count);
  }

  static constexpr DraftModel::Sizes kRoomy{
      .num_pages = 64, .max_rows = 64, .max_sequences = 8, .num_slots = 44};
  FakeModelOptions options_;
  FakeModel* model_ = nullptr;
  std::unique_ptr<DraftModel> drafter_;
};

TEST_P(DraftModelTest, GuessesAreGreedy) {
  Make(kRoomy);
  for (const int64_t count : {1, 2, 7, 10}) {
    EXPECT_EQ(Guess(count, Prompt(20, count), count), Greedy(Prompt(20, count), count));
  }
  EXPECT_EQ(drafter_->num_forwards(), 1 + 2 + 7 + 10);
}

TEST_P(DraftModelTest, OnlyWhatDiffersIsComputedAgain) {
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

TEST_P(DraftModelTest, SequencesShareForwards) {
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

TEST_P(DraftModelTest, LongPromptsArePrefilledInChunks) {
  Make({.num_pages = 64, .max_rows = 32, .max_sequences = 4, .num_slots = 28});
  const std::vector<int32_t> prompt = Prompt(100);
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(Guess(0, prompt, 3).empty()) << call;
  EXPECT_EQ(Guess(0, prompt, 3), Greedy(prompt, 3));
}

TEST_P(DraftModelTest, AnEndedSequenceIsFoundByItsFollowUp) {
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

TEST_P(DraftModelTest, WithoutPagesThereAreNoGuesses) {
  Make({.num_pages = 4, .max_rows = 64, .max_sequences = 4, .num_slots = 28});
  EXPECT_EQ(Guess(0, Prompt(40), 2).size(), 2);
  EXPECT_TRUE(Guess(1, Prompt(20, 1), 2).empty());
  drafter_->Forget(0);  // its pages are cached now, and the cache gives way
  EXPECT_EQ(Guess(1, Prompt(20, 1), 2), Greedy(Prompt(20, 1), 2));
  EXPECT_TRUE(Guess(2, Prompt(65), 1).empty()) << "never fits";
}

TEST_P(DraftModelTest, WhatTheModelCannotReadGetsNoGuesses) {
  FakeModelOptions options;
  options.vocab_size = 100;
  options.context_window_size = 24;
  Make(kRoomy, options);
  EXPECT_EQ(Guess(0, std::vector<int32_t>(20, 99), 5).size(), 5);
  EXPECT_TRUE(Guess(0, std::vector<int32_t>(20, 99), 6).empty()) << "25 tokens";
  EXPECT_TRUE(Guess(1, {1, 2, 100}, 2).empty());
  EXPECT_EQ(Guess(1, {1, 2, 3}, 2).size(), 2);
}

TEST_P(DraftModelTest, AFailureForgetsItsSequences) {
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

TEST_P(DraftModelTest, ADeviceComputesTheNextForwardBeforeTheGuessIsKnown) {
  FakeModelOptions options;
  options.run_ahead = true;
  Make(kRoomy, options);
  std::string calls;
  model_->set_on_forward([&](const ForwardBatch&) { calls += 'F'; });
  model_->steps().set_on_collect([&] { calls += 'C'; });
  EXPECT_EQ(Guess(0, Prompt(20), 4), Greedy(Prompt(20), 4));
  EXPECT_EQ(calls, "FFCFCFCC");
}

TEST_P(DraftModelTest, ARowWithoutNumbersEndsTheGuesses) {
  const std::vector<int32_t> tokens = Prompt(20);
  FakeModelOptions options;
  const std::vector<int32_t> greedy = Oracle(options, tokens, 3);
  options.nan_token = greedy[1];
  Make(kRoomy, options);
  EXPECT_EQ(Guess(0, tokens, 3), (std::vector<int32_t>{greedy[0], greedy[1]}));
}

TEST_P(DraftModelTest, EachNumberOfRightGuessesIsGoneOnFrom) {
  Make(kRoomy);
  int64_t id = 0;
  for (int64_t count = 1; count <= 8; ++count) {
    for (int64_t num_right = 0; num_right <= count; ++num_right, ++id) {
      std::vector<int32_t> tokens = Prompt(14, static_cast<int32_t>(id));
      const std::vector<int32_t> drafts = Guess(id, tokens, count);
      ASSERT_EQ(drafts, Greedy(tokens, count));
      tokens.insert(tokens.end(), drafts.begin(), drafts.begin() + num_right);
      tokens.push_back(num_right < count && drafts[num_right] == 7 ? 8 : 7);
      const int64_t rows = model_->num_rows();
      ASSERT_EQ(Guess(id, tokens, 3), Greedy(tokens, 3)) << num_right << " of " << count;
      EXPECT_EQ(model_->num_rows() - rows, num_right < count ? 3 : 4)
          << num_right << " of " << count;
      drafter_->Forget(id);
    }
  }
}

// The state behind what is left is gone, unless the cache has it.
TEST_P(DraftModelTest, ASequenceThatLostTokensIsReadAgain) {
  Make(kRoomy);
  std::vector<int32_t> tokens = Prompt(40);
  for (int i = 0; i < 6; ++i) {
    ASSERT_EQ(Guess(0, tokens, 3), Greedy(tokens, 3));
    tokens.push_back(static_cast<int32_t>(i));
  }
  for (const size_t length : {43, 20, 41}) {
    tokens.resize(length, 5);
    EXPECT_EQ(Guess(0, tokens, 3), Greedy(tokens, 3)) << length;
  }
}

TEST_P(DraftModelTest, WherePromptsDivergeTheNextOneBegins) {
  Make(kRoomy);
  const auto prompt = [](int32_t name) {
    std::vector<int32_t> tokens = Prompt(30);
    for (int32_t i = 0; i < 10; ++i) tokens.push_back(name + i);
    return tokens;
  };
  std::vector<int64_t> rows;
  for (int32_t i = 0; i < 4; ++i) {
    const int64_t before = model_->num_rows();
    EXPECT_EQ(Guess(i, prompt(20 * i), 1), Greedy(prompt(20 * i), 1));
    rows.push_back(model_->num_rows() - before);
    if (i != 1) drafter_->Forget(i);  // what the second one has found is cached while it goes on
  }
  const bool is_recurrent = GetParam();
  EXPECT_EQ(rows, (std::vector<int64_t>{40, is_recurrent ? 40 : 10, 10, 10}));
  // A sequence that loses tokens goes back there, too.
  std::vector<int32_t> tokens = prompt(20);
  for (int32_t i = 0; i < 3; ++i) {
    tokens.push_back(i);
    EXPECT_EQ(Guess(1, tokens, 1), Greedy(tokens, 1));
  }
  tokens.resize(36);
  const int64_t before = model_->num_rows();
  EXPECT_EQ(Guess(1, tokens, 1), Greedy(tokens, 1));
  EXPECT_EQ(model_->num_rows() - before, is_recurrent ? 6 : 1);
}

TEST_P(DraftModelTest, FewSlotsMakeShorterDrafts) {
  if (!GetParam()) GTEST_SKIP() << "of a model with states";
  DraftModel::Sizes sizes = kRoomy;
  sizes.num_slots = 14;
  sizes.max_rows = 128;
  Make(sizes);
  std::vector<std::vector<int32_t>> sequences;
  for (int32_t i = 0; i < 4; ++i) sequences.push_back(Prompt(20, i));
  for (int step = 0; step < 5; ++step) {
    const auto drafts = GuessAll(sequences, 8);
    for (size_t i = 0; i < drafts.size(); ++i) {
      const std::vector<int32_t> greedy = Greedy(sequences[i], 8);
      ASSERT_GE(drafts[i].size(), 2u) << step;
      ASSERT_LE(drafts[i].size(), 4u) << step;
      EXPECT_TRUE(std::equal(drafts[i].begin(), drafts[i].end(), greedy.begin()));
      const auto num_right = static_cast<std::ptrdiff_t>((i + static_cast<size_t>(step)) % 3);
      sequences[i].insert(sequences[i].end(), greedy.begin(), greedy.begin() + num_right);
      sequences[i].push_back(3);
    }
  }
  // The others do not guess now.
  EXPECT_EQ(Guess(2, sequences[2], 8), Greedy(sequences[2], 8));
  for (int64_t i = 0; i < 4; ++i) drafter_->Forget(i);
  drafter_->Clear();
  EXPECT_EQ(drafter_->kv().slots().num_free(), 14);
}

INSTANTIATE_TEST_SUITE_P(Pages, DraftModelTest, ::testing::Values(false));
INSTANTIATE_TEST_SUITE_P(States, DraftModelTest, ::testing::Values(true));

}  // namespace
}  // namespace mlc_native::testing
