#include "kv/prefix_cache.h"

#include <gtest/gtest.h>

#include <new>
#include <vector>

#include "kv/cached_sequences.h"
#include "support/check.h"
#include "support/error.h"
#include "testing/allocations.h"

namespace mlc_native {
namespace {

class PrefixCacheTest : public ::testing::Test {
 protected:
  PrefixCacheTest() : s_(20, {.max_num_recycling_seqs = -1, .max_pinned_pages = 8}) {}
  ~PrefixCacheTest() override { s_.Audit(); }
  Sequences s_;
};

TEST_F(PrefixCacheTest, ASequenceStartsFromWhatAnotherComputed) {
  EXPECT_EQ(s_.Start(0, Make(40)), 0);
  EXPECT_EQ(s_.Start(1, Make(50)), 40);
  EXPECT_EQ(s_.Start(2, Join(Make(20), Make(10, 1))), 20);
  s_.Audit();
  EXPECT_EQ(s_.kv_.block_table(1)[1], s_.kv_.block_table(0)[1]);
  EXPECT_NE(s_.kv_.block_table(1)[2], s_.kv_.block_table(0)[2]);
  EXPECT_EQ(s_.kv_.block_table(2)[0], s_.kv_.block_table(0)[0]);
}

TEST_F(PrefixCacheTest, TheLastTokenIsAlwaysComputed) {
  s_.Serve(Make(32));
  EXPECT_EQ(s_.Serve(Make(32)), 31);
}

TEST_F(PrefixCacheTest, WhatEndedIsCachedAndCountsAsAvailable) {
  s_.Start(0, Make(40));
  EXPECT_EQ(s_.pool().num_used(), 3);
  s_.Finish(0);
  EXPECT_EQ(s_.pool().num_used(), 0);
  EXPECT_EQ(s_.pool().num_cached(), 3);
  EXPECT_EQ(s_.pool().num_free(), 17);
  EXPECT_EQ(s_.Cached(Make(40)), 40);
}

TEST_F(PrefixCacheTest, FindTellsWhichPagesWillNotBeAvailableAnyMore) {
  s_.Start(0, Make(40));
  EXPECT_EQ(s_.cache_->Find(Make(40)).num_cached_pages, 0);
  s_.Finish(0);
  EXPECT_EQ(s_.cache_->Find(Make(40)).num_cached_pages, 3);
  EXPECT_EQ(s_.cache_->Find(Make(17)).num_cached_pages, 2);
  EXPECT_EQ(s_.cache_->Find(Make(16)).num_cached_pages, 1);
}

TEST_F(PrefixCacheTest, ARunningSequenceGoesOnInItsLastPage) {
  s_.Start(0, Make(20));
  const int64_t used = s_.pool().num_used();
  s_.Append(0, {7, 8});
  EXPECT_EQ(s_.num_copies_, 0);
  EXPECT_EQ(s_.pool().num_used(), used);
  EXPECT_EQ(s_.Start(1, Join(Make(20), {9})), 20) << "tokens behind those shown are not shared";
  EXPECT_EQ(s_.num_copies_, 1);
  s_.Append(0, {7, 8});
  EXPECT_EQ(s_.num_copies_, 1);
  s_.Audit();
}

TEST_F(PrefixCacheTest, TokensThatWereShownAreNotOverwritten) {
  s_.Start(0, Make(20));
  s_.kv_.PopN(0, 2);
  s_.tokens_[0].resize(18);
  s_.Append(0, {7});
  EXPECT_EQ(s_.num_copies_, 1);
  s_.Append(0, {8});
  EXPECT_EQ(s_.num_copies_, 1) << "the copy is its own";
  s_.Start(1, Make(25));
  s_.Audit();
}

TEST_F(PrefixCacheTest, UndoOfACopyKeepsTheOwner) {
  s_.Start(0, Make(20));
  s_.cache_->StartSequence(1, Make(20));
  s_.tokens_[1] = Make(20);
  s_.Reserve(1, {5});
  s_.kv_.PopN(1, 0);
  s_.Audit();
  s_.Append(1, {6});
  EXPECT_EQ(s_.num_copies_, 2);
  s_.Append(0, {7});
  EXPECT_EQ(s_.num_copies_, 2);
}

TEST_F(PrefixCacheTest, EqualPromptsShareTheirFullPages) {
  s_.kv_.AddSequence(0);
  s_.kv_.AddSequence(1);
  for (int64_t id : {0, 1}) s_.Append(id, Make(40));
  EXPECT_EQ(s_.pool().num_used(), 6);
  for (int64_t id : {0, 1}) s_.Insert(id);
  EXPECT_EQ(s_.pool().num_used(), 4) << "each needs a page of its own to go on";
  s_.Append(0, {1});
  s_.Append(1, {2});
  EXPECT_EQ(s_.num_copies_, 0);
  s_.Finish(0);
  s_.Finish(1);
  EXPECT_EQ(s_.Cached(Join(Make(40), {1})), 41);
  EXPECT_EQ(s_.Cached(Join(Make(40), {2})), 41);
}

TEST_F(PrefixCacheTest, BranchesWithinOnePage) {
  for (int32_t branch = 1; branch <= 4; ++branch) s_.Serve(Join(Make(16 + 2 * branch), {branch}));
  EXPECT_EQ(s_.pool().num_cached(), 5) << "slot 0 once, slot 1 for each";
  for (int32_t branch = 1; branch <= 4; ++branch) {
    EXPECT_EQ(s_.Cached(Join(Make(16 + 2 * branch), {branch})), 17 + 2 * branch);
  }
  for (int64_t length : {17, 18, 19, 21, 24}) EXPECT_EQ(s_.Serve(Join(Make(length), {9})), length);
}

TEST_F(PrefixCacheTest, TheLeastRecentlyUsedGoesFirstAndOnlyAsMuchAsNeeded) {
  for (int32_t salt = 1; salt <= 4; ++salt) s_.Serve(Make(80, salt));  // 20 pages
  EXPECT_EQ(s_.pool().num_free(), 0);
  s_.Serve(Make(80, 1));
  s_.Serve(Make(17, 9));  // two pages from the oldest, which is 2
  EXPECT_EQ(s_.Cached(Make(80, 1)), 80);
  EXPECT_EQ(s_.Cached(Make(80, 2)), 48);
  EXPECT_EQ(s_.Cached(Make(80, 3)), 80);
  EXPECT_EQ(s_.cache_->num_evicted_pages(), 2);
}

TEST_F(PrefixCacheTest, WhatIsInUseStaysWhileTheRestIsReclaimed) {
  s_.Start(0, Make(64));
  s_.Serve(Join(Make(64), Make(64, 1)));
  s_.Serve(Make(64, 2));
  EXPECT_EQ(s_.pool().num_used(), 4);
  s_.Start(1, Make(16 * 16, 3));  // all that is not in use
  s_.Audit();
  EXPECT_EQ(s_.pool().num_available(), 0);
  EXPECT_EQ(s_.Cached(Join(Make(64), Make(64, 1))), 64);
  EXPECT_EQ(s_.Cached(Make(64, 2)), 0);
}

TEST_F(PrefixCacheTest, ALeafMayBeCutBelowATokenThatWasOnlyInItsLastPage) {
  s_.Serve(Join(Make(20), {1, 1}));
  s_.Serve(Join(Make(20), {2, 2}));
  s_.Start(0, Make(18 * 16, 3));
  EXPECT_EQ(s_.Cached(Make(20)), 20) << "one branch is left";
  s_.Append(0, {1});
  EXPECT_EQ(s_.Cached(Make(20)), 16) << "what is left is a full page";
  s_.Audit();
}

TEST_F(PrefixCacheTest, ALimitOfRecycledSequencesKeepsTheMostRecent) {
  Sequences s(40, {.max_num_recycling_seqs = 2});
  for (int32_t salt = 1; salt <= 4; ++salt) s.Serve(Make(40, salt));
  EXPECT_EQ(s.Cached(Make(40, 2)), 0);
  EXPECT_EQ(s.Cached(Make(40, 3)), 40);
  EXPECT_EQ(s.Cached(Make(40, 4)), 40);
  s.Audit();
}

TEST_F(PrefixCacheTest, ALimitOfZeroSharesOnlyWithTheLiving) {
  Sequences s(40, {.max_num_recycling_seqs = 0});
  s.Start(0, Make(40));
  EXPECT_EQ(s.Start(1, Make(45)), 40);
  s.Finish(0);
  EXPECT_EQ(s.Cached(Make(45)), 45);
  s.Finish(1);
  EXPECT_EQ(s.pool().num_free(), 40);
  s.Audit();
}

TEST_F(PrefixCacheTest, PinsAreUsedUntilTheyGo) {
  s_.Serve(Make(40));
  const int64_t pin = s_.cache_->Pin(Make(40));
  EXPECT_EQ(s_.cache_->Pin(Make(40)), pin) << "the same tokens are the same pin";
  EXPECT_EQ(s_.pool().num_used(), 3);
  s_.Start(0, Make(17 * 16, 1));
  EXPECT_EQ(s_.pool().num_available(), 0);
  EXPECT_EQ(s_.Cached(Make(40)), 40);
  EXPECT_EQ(s_.cache_->pinned_prefixes().at(0).num_tokens, 40);
  EXPECT_EQ(s_.cache_->pinned_prefixes().at(0).num_pages, 3);
  s_.cache_->Unpin(pin);
  EXPECT_EQ(s_.pool().num_available(), 3);
  EXPECT_THROW(s_.cache_->Unpin(pin), InvalidRequest);
}

TEST_F(PrefixCacheTest, APinOutlivesTheSequencesThatWentOnFromIt) {
  s_.Serve(Make(20));
  s_.cache_->Pin(Make(20));
  s_.Serve(Join(Make(20), {1}));  // takes the place of the pinned page in the tree
  s_.Serve(Join(Make(20), {2}));
  s_.Serve(Join(Make(18), {3}));
  s_.Start(0, Make(18 * 16, 1));
  EXPECT_EQ(s_.Cached(Make(20)), 20);
  EXPECT_EQ(s_.pool().num_available(), 0);
  EXPECT_EQ(s_.cache_->num_pinned_pages(), 2);
}

TEST_F(PrefixCacheTest, PinsAreLimitedAndMustBeCached) {
  EXPECT_THROW(s_.cache_->Pin(Make(5)), InvalidRequest);
  EXPECT_THROW(s_.cache_->Pin({}), InvalidRequest);
  s_.Serve(Make(8 * 16));
  s_.Serve(Make(16, 1));
  EXPECT_THROW(s_.cache_->Pin(Make(8 * 16 + 1)), InvalidRequest);
  s_.cache_->Pin(Make(8 * 16));
  EXPECT_NO_THROW(s_.cache_->Pin(Make(30))) << "its pages are pinned already";
  EXPECT_THROW(s_.cache_->Pin(Make(16, 1)), InvalidRequest);
  EXPECT_EQ(s_.pool().num_used(), 8);
}

TEST_F(PrefixCacheTest, APinThatLacksMemoryIsNone) {
  s_.Serve(Make(40));
  for (int64_t k = 1, failed = true; failed; ++k) {
    int64_t countdown = k;
    try {
      const testing::FailingAllocation armed(&countdown);
      s_.cache_->Pin(Make(40));
    } catch (const std::bad_alloc&) {
      EXPECT_TRUE(s_.cache_->pinned_prefixes().empty()) << k;
      EXPECT_EQ(s_.pool().num_used(), 0) << k;
    }
    failed = countdown < 0;
  }
  EXPECT_EQ(s_.cache_->num_pinned_pages(), 3);
}

TEST_F(PrefixCacheTest, AnInsertThatLacksMemoryKeepsTheCacheWhole) {
  for (int64_t k = 1, failed = true; failed; ++k) {
    s_.cache_->Clear();
    s_.Serve(Make(60));
    s_.kv_.AddSequence(0);
    s_.Append(0, Join(Make(30), Make(30, 1)));
    int64_t countdown = k;
    {
      const Tokens tokens = s_.tokens_[0];
      const testing::FailingAllocation armed(&countdown);
      s_.cache_->Insert(0, tokens);
    }
    failed = countdown < 0;
    s_.Audit();
    EXPECT_EQ(s_.Cached(Make(60)), 60) << k;
    EXPECT_EQ(s_.Cached(s_.tokens_[0]), failed ? 30 : 60) << k;
    s_.Remove(0);
  }
}

TEST_F(PrefixCacheTest, ClearFreesAllThatIsNotInUse) {
  s_.Start(0, Make(40));
  s_.Serve(Make(40, 1));
  s_.cache_->Pin(Make(40, 1));
  s_.cache_->Clear();
  EXPECT_EQ(s_.pool().num_free(), 17);
  EXPECT_EQ(s_.Cached(Make(40)), 0);
  s_.Finish(0);
  EXPECT_EQ(s_.Cached(Make(40)), 40);
}

TEST_F(PrefixCacheTest, MisuseIsAnInternalError) {
  EXPECT_THROW(s_.cache_->StartSequence(0, Make(5)), InternalError);
  s_.Start(0, Make(5));
  EXPECT_THROW(s_.cache_->Insert(0, Make(6)), InternalError);
}

TEST(PrefixCache, PinsBelongToASpace) {
  PagedKvCache kv(16, kPageTokens);
  PrefixCache cache(&kv, {.max_pinned_pages = 8});
  const Tokens tokens = Make(20);
  for (const int64_t space : {0, 5}) {
    std::vector<PageCopy> copies;
    kv.AddSequence(space);
    kv.Reserve(space, std::ssize(tokens), &copies);
    kv.Commit(space, std::ssize(tokens));
    cache.Insert(space, tokens, space);
    kv.RemoveSequence(space);
  }
  EXPECT_THROW(cache.Pin(tokens, 6), InvalidRequest);
  const int64_t pin = cache.Pin(tokens, 5);
  EXPECT_EQ(cache.Pin(tokens, 5), pin);
  EXPECT_NE(cache.Pin(tokens), pin);
}

TEST(PrefixCache, PinsHaveAnOwnerAndALimit) {
  PagedKvCache kv(16, kPageTokens);
  PrefixCache cache(&kv, {.max_pinned_pages = 8, .max_pins = 2});
  for (const int64_t space : {1, 2, 3}) {
    std::vector<PageCopy> copies;
    kv.AddSequence(space);
    kv.Reserve(space, 20, &copies);
    kv.Commit(space, 20);
    cache.Insert(space, Make(20), space);
    kv.RemoveSequence(space);
  }
  const int64_t first = cache.Pin(Make(20), 1, "a request");
  cache.Pin(Make(20), 2);
  EXPECT_THROW(cache.Pin(Make(20), 3), InvalidRequest);
  EXPECT_EQ(cache.Pin(Make(20), 1, "another request"), first);
  EXPECT_EQ(cache.pinned_prefixes().at(0).owner, "a request");
  EXPECT_EQ(cache.pinned_prefixes().at(1).owner, "");
  EXPECT_EQ(cache.Pin(Make(20), 1), first) << "the host takes it over";
  EXPECT_EQ(cache.pinned_prefixes().at(0).owner, "");
  cache.Unpin(first);
  EXPECT_NO_THROW(cache.Pin(Make(20), 3, "a third request"));
}

}  // namespace
}  // namespace mlc_native
