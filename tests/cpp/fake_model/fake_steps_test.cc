// The fake device is what tests of steps that run ahead trust, so it is held to its word first.
#include "fake_model/fake_steps.h"

#include <gtest/gtest.h>

#include <vector>

#include "fake_model/fake_model.h"
#include "support/check.h"

namespace mlc_native::testing {
namespace {

// A row whose penalties count what that row of the step before draws.
TokenRow Behind(int32_t row) {
  TokenRow result;
  result.pending_row = row;
  return result;
}

// One sequence on a model that samples by itself.
class FakeStepsTest : public ::testing::Test {
 protected:
  FakeStepsTest() { model_.Allocate(8, 64, 4); }

  // A step that draws `num_draws` tokens behind `tokens`, which follow `position` others.
  void Submit(std::vector<int32_t> tokens, int64_t position, TokenRow row = {},
              size_t num_draws = 1) {
    const int64_t num_pages = (position + std::ssize(tokens) + 15) / 16;
    const SequenceSlice slice{.first_row = 0,
                              .num_tokens = static_cast<int32_t>(tokens.size()),
                              .position = position,
                              .block_table = std::span(table_).first(num_pages)};
    const std::vector<int32_t> rows(num_draws, static_cast<int32_t>(tokens.size()) - 1);
    queue().Forward({tokens, {&slice, 1}, rows});
    row.config = &config_;
    queue().Sample(std::vector<TokenRow>(num_draws, row));
  }
  std::vector<int32_t> Collect() {
    std::vector<DrawnToken> drawn;
    queue().Collect(&drawn);
    std::vector<int32_t> tokens;
    for (const DrawnToken& token : drawn) tokens.push_back(token.result.token.token_id);
    return tokens;
  }
  StepQueue& queue() { return *model_.step_queue(); }

  FakeModelOptions options_ = [] {
    FakeModelOptions options;
    options.run_ahead = true;
    return options;
  }();
  FakeModel model_{options_};
  GenerationConfig config_ = [] {
    GenerationConfig config;
    config.temperature = 0;
    return config;
  }();
  std::vector<int32_t> table_ = {5, 2, 7};
};

TEST_F(FakeStepsTest, APendingTokenIsWhatTheStepBeforeDraws) {
  Submit({1, 2, 3}, 0);
  Submit({PendingToken(0)}, 3);
  const std::vector<int32_t> first = Collect();
  EXPECT_EQ(first, std::vector<int32_t>{FakeModel::NextToken(options_, std::vector{1, 2, 3})});
  Submit({PendingToken(0)}, 4);
  const std::vector<int32_t> second = Collect();
  const std::vector<int32_t> history = {1, 2, 3, first[0], second[0]};
  EXPECT_EQ(second[0], FakeModel::NextToken(options_, std::span(history).first(4)));
  EXPECT_EQ(Collect()[0], FakeModel::NextToken(options_, history));
}

TEST_F(FakeStepsTest, ARowIsDrawnFromAsOftenAsItIsNamed) {
  Submit({1, 2, 3}, 0, {}, 3);
  const int32_t next = FakeModel::NextToken(options_, std::vector{1, 2, 3});
  EXPECT_EQ(Collect(), (std::vector<int32_t>{next, next, next}));
}

TEST_F(FakeStepsTest, APendingTokenCountsForPenalties) {
  const int32_t next = FakeModel::NextToken(options_, std::vector{1, 2, 3});
  config_.presence_penalty = 2;
  config_.frequency_penalty = 2;
  config_.logit_bias = {{next, 3.9}};  // 12 + 3.9 now, 0 + 3.9 - 4 once it was drawn
  Submit({1, 2, 3}, 0);
  Submit({1, 2, 3}, 0, Behind(0));
  EXPECT_EQ(Collect()[0], next);
  EXPECT_EQ(Collect()[0], next) << "12 + 3.9 - 4 is still the most";
  config_.frequency_penalty = 14;
  Submit({1, 2, 3}, 0);
  Submit({1, 2, 3}, 0, Behind(0));
  EXPECT_EQ(Collect()[0], next);
  EXPECT_NE(Collect()[0], next);
}

// One guess is right, and the next step begins behind it.
TEST_F(FakeStepsTest, AStepBeginsBehindTheGuessesThatAreRight) {
  std::vector<int32_t> history = {1, 2, 3};
  for (int i = 0; i < 4; ++i) history.push_back(FakeModel::NextToken(options_, history));
  FakeTokens tokens(20);
  const TokenBlock block{.place = 4, .num_guesses = 2};
  SequenceSlice slice{.num_tokens = 5, .block_table = std::span(table_).first(1), .block = block};
  const std::vector<int32_t> rows = {2, 3, 4};
  queue().Forward({.token_ids = std::vector<int32_t>{1, 2, 3, history[3], 77},
                   .sequences = {&slice, 1},
                   .logits_rows = rows,
                   .tokens = &tokens});
  TokenRow row;
  row.config = &config_;
  queue().Sample(std::vector<TokenRow>(3, row));
  EXPECT_EQ(tokens.data()[4], FakeTokens::kEmpty) << "other queues do not see it yet";
  const std::vector<int32_t> last = {0};
  slice = {
      .num_tokens = 1, .position = 3, .block_table = std::span(table_).first(1), .behind = block};
  const std::vector<int32_t> next_ids = {TokenAt(block.next())};
  const ForwardBatch next{
      .token_ids = next_ids, .sequences = {&slice, 1}, .logits_rows = last, .tokens = &tokens};
  FakeModel other(options_);
  other.Allocate(8, 64, 4);
  EXPECT_THROW(other.step_queue()->Forward(next), InternalError);
  EXPECT_EQ(other.steps().num_early_reads(), 1);
  other.step_queue()->RunBehind(queue());
  EXPECT_EQ(std::vector(tokens.data() + 4, tokens.data() + 9),
            (std::vector<int32_t>{1, history[4], history[3], history[4], tokens.data()[8]}));
  queue().Forward(next);
  queue().Sample({&row, 1});
  std::vector<DrawnToken> drawn;
  queue().Collect(&drawn);
  EXPECT_EQ(drawn[0].draft_token, history[3]);
  EXPECT_EQ(drawn[1].draft_token, 77);
  EXPECT_EQ(Collect()[0], history[5]);
}

TEST_F(FakeStepsTest, RefusesWhatADeviceCouldNotDo) {
  EXPECT_THROW(Submit({PendingToken(0)}, 0), InternalError) << "of no step";
  EXPECT_THROW(Collect(), InternalError);
  EXPECT_THROW(queue().Sample({}), InternalError) << "without a forward";
  Submit({1, 2, 3}, 0);
  EXPECT_THROW(Submit({PendingToken(1)}, 3), InternalError) << "of no row";
  Submit({PendingToken(0)}, 3);
  EXPECT_THROW(Submit({PendingToken(0)}, 4), InternalError) << "a third one";
  Collect();
  Collect();
  EXPECT_THROW(Submit({PendingToken(0)}, 4), InternalError) << "it is known";
}

// A copy comes behind the steps in flight, whether they are lost or not.
TEST_F(FakeStepsTest, CopiesHaveWhatLostStepsHaveWritten) {
  model_.options().fail_at_collect = {3};
  const int32_t own = table_[0], copy = 6, other = 3;
  table_ = {other};
  Submit({6, 7, 8, 9}, 0);
  Collect();
  table_ = {own};
  Submit({1, 2, 3}, 0);
  Collect();
  Submit({4}, 3);
  const PageCopy copies[] = {{.src_page = own, .dst_page = copy},
                             {.src_page = other, .dst_page = own}};
  model_.CopyPages(copies);
  EXPECT_EQ(model_.stored_token(copy, 3), 4);
  EXPECT_THROW(Collect(), std::runtime_error);
  EXPECT_EQ(model_.stored_token(copy, 2), 3);
  EXPECT_EQ(model_.stored_token(copy, 3), -1) << "a copy of what is lost";
  EXPECT_EQ(model_.stored_token(own, 3), 9) << "written later";
}

TEST_F(FakeStepsTest, WhatALostStepHasWrittenIsSpoiled) {
  model_.options().fail_at_collect = {2};
  Submit({1, 2, 3}, 0);
  Collect();
  Submit({4}, 3);
  Submit({PendingToken(0)}, 4);
  EXPECT_THROW(Collect(), std::runtime_error);
  EXPECT_THROW(Collect(), InternalError) << "both are lost";
  Submit({5}, 4);  // behind the place of the 4
  EXPECT_NE(Collect()[0], FakeModel::NextToken(options_, std::vector{1, 2, 3, 4, 5}));
}

// Who reads the memory of a device waits for all steps that use it.
TEST_F(FakeStepsTest, StatesThatTheNextStepOverwritesAreGone) {
  const std::vector<int32_t> zero = {0};
  const auto memory = model_.MakeStateMemory(1, 3);
  const auto submit = [&](int32_t token, int32_t page) {
    const std::vector<int32_t> table = {page};
    const std::vector<int32_t> tokens = {token};
    const SequenceSlice slice{.num_tokens = 1, .block_table = table};
    ForwardBatch batch{tokens, {&slice, 1}, {}};
    batch.hidden = {.rows = zero, .streams = zero, .memory = memory.get(), .places = zero};
    queue().Forward(batch);
    queue().Sample({});
  };
  const auto token_there = [&] {
    std::vector<float> state(3);
    memory->Read(0, state);
    return state[0];
  };
  submit(4, 0);
  Collect();
  EXPECT_EQ(token_there(), 4);
  submit(5, 0);
  submit(6, 1);
  Collect();
  EXPECT_EQ(token_there(), -1);
  Collect();
  EXPECT_EQ(token_there(), 6);
}

}  // namespace
}  // namespace mlc_native::testing
