// A draft head reads no hidden state before the step that computes it is collected.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "step/head_drafter_fixture.h"

namespace mlc_native::testing {
namespace {

TEST_F(HeadDrafterTest, StatesOfAStepInFlightAreNotRead) {
  Make();
  for (int64_t id : {0, 1}) tokens_[id] = Prompt(40, static_cast<int32_t>(id));
  Compute({{0, 0, 20}, {1, 0, 20}}, /*is_collected=*/false);
  EXPECT_TRUE(Guess(0, 2).empty());
  drafter_->Forget(1);
  EXPECT_EQ(head_->num_forwards(), 0);
  drafter_->Collected();
  Compute({{0, 20, 20}}, /*is_collected=*/false);
  tokens_[0].push_back(1);
  drafter_->Unwatch();  // it is lost
  EXPECT_TRUE(Guess(0, 2).empty());
  EXPECT_EQ(head_->num_forwards(), 1) << "what was there before is read";
  Compute({{0, 20, 21}});
  tokens_[0].push_back(2);
  EXPECT_EQ(Guess(0, 2), Next(0, 2));
  EXPECT_EQ(head_->num_misaligned(), 0);
}

TEST_F(HeadDrafterTest, ADeviceComputesTheNextForwardBeforeTheGuessIsKnown) {
  FakeModelOptions options = Head();
  options.run_ahead = true;
  Make(kRoomy, options);
  std::string calls;
  head_->set_on_forward([&](const ForwardBatch&) { calls += 'F'; });
  head_->steps().set_on_collect([&] { calls += 'C'; });
  tokens_[0] = Prompt(20);
  Compute({{0, 0, 20}});
  tokens_[0].push_back(7);
  EXPECT_EQ(Guess(0, 4), Next(0, 4));
  EXPECT_EQ(calls, "FFCFCFCC");
}

TEST_F(HeadDrafterTest, StatesOfTwoStepsMayBeOnTheirWay) {
  Make();
  for (int64_t id : {0, 1}) tokens_[id] = Prompt(40, static_cast<int32_t>(id));
  Compute({{0, 0, 20}, {1, 0, 10}}, /*is_collected=*/false);
  Compute({{0, 20, 20}, {1, 10, 10}}, /*is_collected=*/false);
  EXPECT_TRUE(Guess(0, 2).empty());
  EXPECT_EQ(head_->num_forwards(), 0);
  drafter_->Collected();
  EXPECT_TRUE(Guess(0, 2).empty());
  EXPECT_EQ(head_->num_rows(), 20) << "those of the first step";
  drafter_->Unwatch();  // the second step is lost
  Compute({{0, 20, 20}, {1, 10, 30}});
  for (int64_t id : {0, 1}) {
    tokens_[id].push_back(3);
    EXPECT_EQ(Guess(id, 2), Next(id, 2)) << id;
  }
  EXPECT_EQ(head_->num_rows(), 40 + 1 + 40 + 1) << "each state is read once";
  EXPECT_EQ(head_->num_misaligned(), 0);
}

// Behind guesses in flight, a position is the furthest that it can be.
TEST_F(HeadDrafterTest, WhatItHasNotSeenItBeginsWhereThePositionIsKnown) {
  Make();
  tokens_[0] = Prompt(20);
  const auto watch = [&](int64_t position) {
    const BatchDrafter::WatchedSlice slice{
        .sequence_id = 0, .tokens = &tokens_[0], .position = position, .num_rows = 4};
    const size_t num_rows = drafter_->Watch({&slice, 1}).rows.size();
    drafter_->Audit();
    return num_rows;
  };
  EXPECT_EQ(watch(23), 0) << "three guesses may be wrong";
  EXPECT_EQ(drafter_->kv().num_sequences(), 0);
  EXPECT_EQ(watch(20), 4) << "the step in flight has no guesses";
  EXPECT_EQ(watch(24), 4) << "it follows";
  EXPECT_EQ(watch(27), 0) << "one was not seen";
  drafter_->Collected();
  drafter_->Collected();
  Compute({{0, 16, 4}});
  tokens_[0].push_back(7);
  EXPECT_EQ(Guess(0, 4), Next(0, 4));
  EXPECT_EQ(head_->num_misaligned(), 0);
}

TEST_F(HeadDrafterTest, AnIdMayComeAgainWhileAStepOfItIsInFlight) {
  Make();
  tokens_[0] = Prompt(30);
  tokens_[1] = Prompt(30, 1);
  Compute({{0, 0, 20}, {1, 0, 30}}, /*is_collected=*/false);
  drafter_->Forget(0);
  tokens_[0] = Prompt(25, 7);
  Compute({{0, 0, 25}}, /*is_collected=*/false);
  drafter_->Collected();
  EXPECT_TRUE(Guess(0, 1).empty());
  EXPECT_EQ(head_->num_forwards(), 1) << "only what is known of the other sequence is read";
  drafter_->Collected();
  for (int64_t id : {0, 1}) {
    tokens_[id].push_back(5);
    EXPECT_EQ(Guess(id, 3), Next(id, 3)) << id;
  }
  EXPECT_EQ(head_->num_misaligned(), 0);
}

}  // namespace
}  // namespace mlc_native::testing
