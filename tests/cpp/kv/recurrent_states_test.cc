// The slots of states of recurrent layers: who holds them, and where prompts start.
#include <gtest/gtest.h>

#include <vector>

#include "kv/cached_sequences.h"
#include "kv/paged_kv_cache.h"
#include "kv/prefix_cache.h"
#include "support/check.h"

namespace mlc_native {
namespace {

constexpr int64_t kNumSlots = 8;

class RecurrentStatesTest : public ::testing::Test {
 protected:
  ~RecurrentStatesTest() override { Audit(); }

  void Audit() {
    cache_.Audit();
    kv_.Audit(cache_.CountHolders(), cache_.CountHoldersOfSlots());
  }
  // Computes the next tokens and leaves states behind these numbers of them, of which the cache
  // gets the first `num_kept`.
  void Append(int64_t id, int64_t count, std::vector<int64_t> places, size_t num_kept = 0) {
    std::vector<StatePlace> states;
    for (size_t i = 0; i < places.size(); ++i) states.push_back({places[i], i < num_kept});
    std::vector<PageCopy> copies;
    kv_.Reserve(id, count, &copies);
    kv_.ReserveStates(id, states);
    kv_.Commit(id, count);
  }
  // A sequence with a state behind its prompt's last token and one in front of it, as it ends.
  void Serve(const Tokens& tokens) {
    const int64_t length = cache_.Find(std::span(tokens).first(tokens.size() - 1)).length;
    cache_.StartSequence(kPassing, std::span(tokens).first(length));
    const int64_t rest = std::ssize(tokens) - length;
    Append(kPassing, rest, {rest - 1, rest}, 1);
    Finish(kPassing, tokens);
  }
  void Finish(int64_t id, const Tokens& tokens) {
    kv_.KeepState(id);
    cache_.Insert(id, tokens);
    kv_.RemoveSequence(id);
  }
  int64_t used() const { return kv_.slots().num_used(); }

  static constexpr int64_t kPassing = 9;
  PagedKvCache kv_{20, kPageTokens, {}, kNumSlots};
  PrefixCache cache_{&kv_, {.max_pinned_pages = 8, .max_pinned_slots = 1}};
};

TEST_F(RecurrentStatesTest, AForwardReadsOneStateAndWritesOthers) {
  kv_.AddSequence(0);
  EXPECT_EQ(kv_.state_slot(0), -1);
  Append(0, 20, {20});
  const int32_t first = kv_.state_slot(0);
  EXPECT_GE(first, 0);
  std::vector<PageCopy> copies;
  kv_.Reserve(0, 3, &copies);
  const std::vector<StatePlace> places = {{1}, {3}};
  kv_.ReserveStates(0, places);
  EXPECT_EQ(kv_.state_slot(0), first);
  ASSERT_EQ(kv_.state_writes(0).size(), 2u);
  EXPECT_EQ(kv_.state_writes(0)[1].num_tokens, 3);
  EXPECT_NE(kv_.state_writes(0)[0].slot, first);
  kv_.PopN(0, 0);  // the forward has failed
  EXPECT_EQ(kv_.state_slot(0), first);
  EXPECT_TRUE(kv_.state_writes(0).empty());
  EXPECT_EQ(used(), 1);
  kv_.RemoveSequence(0);
  EXPECT_EQ(used(), 0);
}

TEST_F(RecurrentStatesTest, ASequenceGoesBackToWhereItHoldsAState) {
  kv_.AddSequence(0);
  Append(0, 20, {19, 20});
  Append(0, 4, {1, 2, 3, 4});  // a token and three guesses
  EXPECT_EQ(used(), 5);
  kv_.PopN(0, 1);
  kv_.PopN(0, 1);
  const int32_t behind_22 = kv_.state_slot(0);
  EXPECT_GE(behind_22, 0);
  EXPECT_EQ(used(), 3);
  Append(0, 1, {1});
  EXPECT_EQ(used(), 2);
  kv_.PopN(0, 1);
  EXPECT_EQ(kv_.state_slot(0), behind_22);
  kv_.PopN(0, 1);
  EXPECT_EQ(kv_.state_slot(0), -1) << "that state was given away";
  const std::vector<StatePlace> places = {{1}};
  EXPECT_THROW(kv_.ReserveStates(0, places), InternalError);
  kv_.RemoveSequence(0);
}

// As of a draft model, whose forwards follow one another.
TEST_F(RecurrentStatesTest, SeveralForwardsFollowOneReservation) {
  kv_.AddSequence(0);
  std::vector<PageCopy> copies;
  kv_.Reserve(0, 22, &copies);
  const std::vector<StatePlace> places = {{5, true}, {20}, {21}, {22}};
  kv_.ReserveStates(0, places);
  const std::vector<RecurrentWrite> writes(kv_.state_writes(0).begin(), kv_.state_writes(0).end());
  kv_.Commit(0, 20);
  EXPECT_EQ(kv_.state_slot(0), writes[1].slot);
  ASSERT_EQ(kv_.state_writes(0).size(), 2u);
  for (size_t i = 2; i < 4; ++i) {
    Audit();
    EXPECT_EQ(kv_.state_writes(0)[0].num_tokens, 1);
    EXPECT_EQ(kv_.state_writes(0)[0].slot, writes[i].slot);
    kv_.Commit(0, 1);
    EXPECT_EQ(kv_.state_slot(0), writes[i].slot);
  }
  EXPECT_EQ(used(), 4);
  EXPECT_EQ(kv_.LengthToGoOnFrom(0, 22), 22);
  EXPECT_EQ(kv_.LengthToGoOnFrom(0, 21), 21);
  EXPECT_EQ(kv_.LengthToGoOnFrom(0, 19), 5);
  EXPECT_EQ(kv_.LengthToGoOnFrom(0, 4), 0);
  kv_.PopN(0, 1);
  EXPECT_EQ(kv_.state_slot(0), writes[2].slot);
  EXPECT_EQ(used(), 3);
  // What is not used goes back.
  kv_.Reserve(0, 3, &copies);
  kv_.ReserveStates(0, std::vector<StatePlace>{{1}, {2}, {3}});
  kv_.Commit(0, 1);
  kv_.PopN(0, 0);
  EXPECT_TRUE(kv_.state_writes(0).empty());
  EXPECT_EQ(used(), 3) << "two states, and the one that is kept";
  kv_.RemoveSequence(0);
}

TEST_F(RecurrentStatesTest, ForksShareStates) {
  kv_.AddSequence(0);
  Append(0, 20, {19, 20});
  kv_.ForkSequence(0, 1, 20);
  EXPECT_EQ(kv_.state_slot(1), kv_.state_slot(0));
  EXPECT_EQ(used(), 2);
  kv_.PopN(1, 1);
  EXPECT_GE(kv_.state_slot(1), 0);
  Append(1, 1, {1});
  EXPECT_NE(kv_.state_slot(1), kv_.state_slot(0));
  EXPECT_EQ(used(), 3);
  kv_.RemoveSequence(0);
  kv_.RemoveSequence(1);
  EXPECT_EQ(used(), 0);
}

TEST_F(RecurrentStatesTest, WhatIsKeptForTheCacheGoesWithTheTokens) {
  kv_.AddSequence(0);
  Append(0, 20, {20}, 1);
  kv_.KeepState(0);  // which it is already
  ASSERT_EQ(kv_.kept_states(0).size(), 1u);
  Append(0, 4, {2, 4}, 2);
  EXPECT_EQ(kv_.kept_states(0).size(), 3u);
  kv_.PopN(0, 2);
  EXPECT_EQ(kv_.kept_states(0).size(), 2u);
  cache_.Insert(0, Make(22));
  EXPECT_EQ(cache_.num_states(), 2);
  EXPECT_TRUE(kv_.kept_states(0).empty()) << "the cache has them";
  kv_.RemoveSequence(0);
}

TEST_F(RecurrentStatesTest, APromptStartsFromTheLastStateOnItsPath) {
  Serve(Make(40));
  EXPECT_EQ(cache_.num_states(), 2);
  EXPECT_EQ(used(), 0);
  EXPECT_EQ(kv_.slots().num_cached(), 2);
  EXPECT_EQ(cache_.Find(Make(40)).length, 40);
  EXPECT_EQ(cache_.Find(Make(39)).length, 39);
  EXPECT_EQ(cache_.Find(Make(38)).length, 0) << "pages without a state are no prefix";
  EXPECT_EQ(cache_.Find(Make(38)).num_cached_pages, 0);
  EXPECT_EQ(cache_.NumMatched(Make(38)), 38);
  EXPECT_EQ(cache_.Find(Join(Make(39), {7, 8})).length, 39);
  cache_.StartSequence(0, Make(39));
  EXPECT_EQ(kv_.length(0), 39);
  EXPECT_GE(kv_.state_slot(0), 0);
  EXPECT_EQ(used(), 1);
  kv_.RemoveSequence(0);
}

TEST_F(RecurrentStatesTest, AStateWherePromptsDivergeServesTheNextOne) {
  Serve(Join(Make(20), Make(10, 1)));
  const Tokens second = Join(Make(20), Make(10, 2));
  EXPECT_EQ(cache_.NumMatched(second), 20);
  kv_.AddSequence(0);
  Append(0, 30, {20, 29, 30}, 2);
  Finish(0, second);
  EXPECT_EQ(cache_.Find(Join(Make(20), Make(10, 3))).length, 20);
  Audit();  // the node was split, and the state is in its upper part
}

// As where a prompt takes two steps, and the second one is in flight when the first is collected.
TEST_F(RecurrentStatesTest, StatesOfStepsInFlightWaitUntilTheyAreCollected) {
  kv_.AddSequence(0);
  Append(0, 16, {16});
  Append(0, 14, {1, 13, 14}, 2);
  cache_.Insert(0, Make(16));
  EXPECT_EQ(cache_.num_states(), 0);
  EXPECT_EQ(kv_.kept_states(0).size(), 2u);
  cache_.Insert(0, Make(30));
  EXPECT_EQ(cache_.Find(Make(30)).length, 29);
  EXPECT_EQ(cache_.Find(Make(28)).length, 17);
  EXPECT_TRUE(kv_.kept_states(0).empty());
  kv_.RemoveSequence(0);
}

TEST_F(RecurrentStatesTest, SlotsAreReclaimedFromTheStateThatWasUsedLeast) {
  for (int32_t i = 0; i < 4; ++i) Serve(Make(10, i));
  EXPECT_EQ(cache_.num_states(), kNumSlots);
  cache_.StartSequence(0, Make(9, 0));  // a use
  kv_.RemoveSequence(0);
  Serve(Make(10, 5));
  EXPECT_EQ(cache_.num_states(), kNumSlots);
  EXPECT_EQ(cache_.Find(Make(9, 0)).length, 9);
  EXPECT_EQ(cache_.Find(Make(10, 0)).length, 9);
  EXPECT_EQ(cache_.Find(Make(9, 1)).length, 0);
}

TEST_F(RecurrentStatesTest, PagesThatAreReclaimedTakeTheirStatesAlong) {
  Serve(Make(300));
  EXPECT_EQ(cache_.num_states(), 2);
  kv_.AddSequence(0);
  Append(0, 40, {40});  // a page is free
  Audit();
  EXPECT_EQ(cache_.num_states(), 0);
  EXPECT_EQ(cache_.NumMatched(Make(300)), 272);
  kv_.RemoveSequence(0);
}

TEST_F(RecurrentStatesTest, PinsHoldTheirState) {
  Serve(Make(20, 1));
  Serve(Make(20, 2));
  const int64_t pin = cache_.Pin(Make(20, 1));
  cache_.Pin(Make(20, 2));  // its state cannot be spared
  for (int32_t i = 3; i < 8; ++i) Serve(Make(10, i));
  EXPECT_EQ(cache_.Find(Make(20, 1)).length, 20);
  EXPECT_EQ(cache_.Find(Make(20, 2)).length, 0);
  EXPECT_EQ(used(), 1);
  Audit();
  cache_.Unpin(pin);
  EXPECT_EQ(used(), 0);
}

}  // namespace
}  // namespace mlc_native
