// A draft head that lacks memory, pages or positions, or that fails, forgets sequences and goes on
// with what it sees afterwards.
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "step/head_drafter_fixture.h"
#include "testing/allocations.h"

namespace mlc_native::testing {
namespace {

TEST_F(HeadDrafterTest, AForkWithoutMemoryStartsAnew) {
  bool failed = true;
  for (int64_t k = 1; failed; ++k) {
    SCOPED_TRACE(k);
    Make();
    for (int64_t id : {0, 7}) tokens_[id] = Prompt(20);
    Compute({{0, 0, 20}});
    int64_t countdown = k;
    {
      const FailingAllocation failing(&countdown);
      drafter_->Fork(0, 7, tokens_[7]);
    }
    failed = countdown < 0;
    drafter_->Audit();
    drafter_->Forget(0);
    tokens_[0].clear();
    tokens_[7].push_back(5);
    Compute({{7, 20, 1}});
    tokens_[7].push_back(6);
    EXPECT_EQ(Guess(7, 4), Next(7, 4));
    EXPECT_EQ(head_->num_misaligned(), 0);
    drafter_->Forget(7);
    EXPECT_EQ(drafter_->kv().num_sequences(), 0);
  }
}

TEST_F(HeadDrafterTest, WithoutPlacesForNewStatesOldOnesAreForgotten) {
  FakeModelOptions options = Head();
  options.run_ahead = false;
  Make({.num_pages = 64, .max_rows = 40, .max_sequences = 1}, options);  // 56 places
  for (int64_t id : {0, 1}) tokens_[id] = Prompt(40, static_cast<int32_t>(id));
  Compute({{0, 0, 30}}, /*is_collected=*/false);
  Compute({{1, 0, 40}}, /*is_collected=*/false);
  EXPECT_FALSE(drafter_->kv().HasSequence(0));
  drafter_->Collected();
  drafter_->Collected();
  tokens_[1].push_back(1);
  EXPECT_EQ(Guess(1, 2), Next(1, 2));
  Compute({{0, 30, 10}});
  tokens_[0].push_back(2);
  EXPECT_EQ(Guess(0, 2), Next(0, 2)) << "with what it has seen since";
  EXPECT_EQ(head_->num_misaligned(), 0);
}

TEST_F(HeadDrafterTest, WithoutPagesThereAreNoGuesses) {
  Make({.num_pages = 3, .max_rows = 64, .max_sequences = 4});
  tokens_[0] = tokens_[1] = Prompt(20);
  Compute({{0, 0, 20}, {1, 0, 20}});
  for (int64_t id : {0, 1}) tokens_[id].push_back(1);
  EXPECT_EQ(Guess(0, 2), Next(0, 2));
  EXPECT_TRUE(Guess(1, 2).empty());
  drafter_->Forget(0);
  Compute({{1, 20, 1}});
  tokens_[1].push_back(2);
  EXPECT_EQ(Guess(1, 2), Next(1, 2)) << "the cache gives way";
}

TEST_F(HeadDrafterTest, BeyondItsLengthItForgetsTheOldTokens) {
  FakeModelOptions options = Head();
  options.context_window_size = 24;
  Make(kRoomy, options);
  tokens_[0] = Prompt(20);
  Compute({{0, 0, 20}});
  tokens_[0].push_back(1);
  EXPECT_EQ(Guess(0, 5), Next(0, 5)) << "24 tokens";
  Compute({{0, 20, 1}});
  tokens_[0].push_back(2);
  EXPECT_EQ(Guess(0, 5), Next(0, 5));
  EXPECT_EQ(drafter_->kv().length(0), 1);
  tokens_[1] = Prompt(30);
  Compute({{1, 0, 30}});
  EXPECT_TRUE(Guess(1, 1).empty());
}

TEST_F(HeadDrafterTest, AFailureForgetsTheSequences) {
  FakeModelOptions options = Head();
  options.fail_at_forward = {2};
  Make(kRoomy, options);
  tokens_[0] = Prompt(20);
  Compute({{0, 0, 20}});
  tokens_[0].push_back(1);
  EXPECT_THROW(Guess(0, 3), std::runtime_error);
  drafter_->Audit();
  EXPECT_EQ(drafter_->kv().num_sequences(), 0);
  Compute({{0, 20, 1}});
  tokens_[0].push_back(2);
  EXPECT_EQ(Guess(0, 3), Next(0, 3));
}

}  // namespace
}  // namespace mlc_native::testing
