#include "kv/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <set>
#include <vector>

#include "support/check.h"
#include "support/error.h"
#include "testing/allocations.h"

namespace mlc_native {
namespace {

constexpr int64_t kPageTokens = 16;
using Tokens = std::vector<int32_t>;

// `length` tokens that differ with `salt` from the first on.
Tokens Make(int64_t length, int32_t salt = 0) {
  Tokens tokens(length);
  for (int64_t i = 0; i < length; ++i) tokens[i] = static_cast<int32_t>(i + 1000 * salt);
  return tokens;
}

Tokens Join(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Sequences over a cache, one operation per line. Plays the model too: what it stores in a slot of
// a page is the token, and every read goes through the block table.
class Sequences {
 public:
  Sequences(int64_t num_pages, PrefixCacheLimits limits)
      : kv_(num_pages, kPageTokens), cache_(std::make_unique<PrefixCache>(&kv_, limits)) {}

  // Starts from the cache, computes the rest and shows it to the cache. Returns what was cached.
  int64_t Start(int64_t id, const Tokens& tokens) {
    const int64_t length = cache_->Find(std::span(tokens).first(tokens.size() - 1)).length;
    cache_->StartSequence(id, std::span(tokens).first(length));
    tokens_[id].assign(tokens.begin(), tokens.begin() + length);
    Append(id, Tokens(tokens.begin() + length, tokens.end()));
    Insert(id);
    return length;
  }
  void Append(int64_t id, const Tokens& tokens) {
    Reserve(id, tokens);
    Commit(id, tokens);
  }
  void Reserve(int64_t id, const Tokens& tokens) {
    std::vector<PageCopy> copies;
    const int64_t available = kv_.pool().num_available();
    const int64_t needed = kv_.PagesNeeded(id, std::ssize(tokens));
    kv_.Reserve(id, std::ssize(tokens), &copies);
    EXPECT_EQ(kv_.pool().num_available(), available - needed);
    for (const PageCopy& copy : copies) {
      for (int i = 0; i < kPageTokens; ++i) Slot(copy.dst_page, i) = Slot(copy.src_page, i);
    }
    num_copies_ += std::ssize(copies);
    for (int64_t i = 0; i < std::ssize(tokens); ++i) At(id, kv_.length(id) + i) = tokens[i];
  }
  void Commit(int64_t id, const Tokens& tokens) {
    kv_.Commit(id, std::ssize(tokens));
    tokens_[id].insert(tokens_[id].end(), tokens.begin(), tokens.end());
  }
  void Insert(int64_t id) { cache_->Insert(id, tokens_.at(id)); }
  // As a sequence ends.
  void Finish(int64_t id) {
    Insert(id);
    Remove(id);
  }
  void Remove(int64_t id) {
    kv_.RemoveSequence(id);
    tokens_.erase(id);
    cache_->EvictExcess();
  }
  // A sequence that came and went.
  int64_t Serve(const Tokens& tokens) {
    const int64_t cached = Start(kPassing, tokens);
    Finish(kPassing);
    return cached;
  }
  int64_t Cached(const Tokens& tokens) { return cache_->Find(tokens).length; }

  void Audit() {
    cache_->Audit();
    kv_.Audit(cache_->CountHolders());
    for (const auto& [id, tokens] : tokens_) {
      ASSERT_EQ(kv_.length(id), std::ssize(tokens));
      for (int64_t i = 0; i < std::ssize(tokens); ++i) ASSERT_EQ(At(id, i), tokens[i]) << id;
    }
  }
  int32_t& At(int64_t id, int64_t position) {
    return Slot(kv_.block_table(id)[position / kPageTokens], position % kPageTokens);
  }
  int32_t& Slot(int32_t page, int64_t offset) { return stored_[page * kPageTokens + offset]; }
  const PagePool& pool() const { return kv_.pool(); }

  static constexpr int64_t kPassing = 1000;
  PagedKvCache kv_;
  std::unique_ptr<PrefixCache> cache_;
  std::map<int64_t, Tokens> tokens_;
  std::map<int64_t, int32_t> stored_;
  int64_t num_copies_ = 0;
};

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

// Random operations with few different tokens, so that sequences meet everywhere.
class Simulation {
 public:
  explicit Simulation(uint32_t seed)
      : rng_(seed),
        limits_{.max_num_recycling_seqs = Random(3) == 0 ? Random(4) : -1, .max_pinned_pages = 4},
        s_(14, limits_) {}

  void Run(int num_operations) {
    for (int i = 0; i < num_operations; ++i) {
      RandomOperation();
      s_.Audit();
      if (::testing::Test::HasFatalFailure()) return;
      CheckPins();
    }
    while (!s_.tokens_.empty()) s_.Finish(s_.tokens_.begin()->first);
    EXPECT_EQ(s_.pool().num_used(), s_.cache_->num_pinned_pages());
    if (limits_.max_num_recycling_seqs >= 0) {
      EXPECT_LE(s_.pool().num_cached(CacheHold::kTail), limits_.max_num_recycling_seqs);
    }
    s_.Audit();
    num_evicted += s_.cache_->num_evicted_pages();
    s_.cache_->Clear();
    EXPECT_EQ(s_.pool().num_free(), s_.pool().num_total());
  }

  int64_t num_hits = 0;
  int64_t num_evicted = 0;

 private:
  int Random(int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(rng_); }
  int64_t RandomLive() { return std::next(s_.tokens_.begin(), Random(s_.tokens_.size()))->first; }

  Tokens RandomTokens(int max_length) {
    Tokens tokens(1 + Random(max_length));
    for (int32_t& token : tokens) token = Random(16) == 0 ? 1 : 0;
    return tokens;
  }

  void RandomOperation() {
    if (s_.tokens_.empty() || Random(4) == 0) return StartSequence();
    const int64_t id = RandomLive();
    switch (Random(9)) {
      case 0:
        return Fork(id);
      case 1:
        known_.insert(s_.tokens_[id]);
        return s_.Finish(id);
      case 2:
        return s_.Remove(id);
      case 3:
        return Pop(id);
      case 4:
        return Insert(id);
      case 5:
        return Random(2) == 0 ? Pin() : Unpin();
      default:
        return Append(id);
    }
  }

  void StartSequence() {
    const Tokens tokens = RandomTokens(60);
    PrefixCache::Prefix prefix = s_.cache_->Find(std::span(tokens).first(tokens.size() - 1));
    ASSERT_LE(prefix.length, LongestKnown(tokens));
    if (Random(2) == 0) {
      prefix = s_.cache_->Find(std::span(tokens).first(prefix.length / kPageTokens * kPageTokens));
    }
    const int64_t before = s_.pool().num_available();
    const int64_t needed = s_.kv_.PagesNeededForNew(std::ssize(tokens), prefix.length);
    if (needed + prefix.num_cached_pages > before) return;
    num_hits += prefix.length > 0 ? 1 : 0;
    const int64_t id = next_id_++;
    s_.cache_->StartSequence(id, std::span(tokens).first(prefix.length));
    ASSERT_EQ(s_.pool().num_available(), before - prefix.num_cached_pages);
    s_.tokens_[id].assign(tokens.begin(), tokens.begin() + prefix.length);
    const Tokens rest(tokens.begin() + prefix.length, tokens.end());
    ASSERT_EQ(s_.kv_.PagesNeeded(id, std::ssize(rest)), needed);
    s_.Append(id, rest);
    if (Random(2) == 0) Insert(id);
  }

  // A failed forward may have copied pages and written its own slots, without any visible effect.
  void Append(int64_t id) {
    const Tokens tokens = RandomTokens(20);
    if (s_.kv_.PagesNeeded(id, std::ssize(tokens)) > s_.pool().num_available()) return;
    s_.Reserve(id, tokens);
    if (Random(4) == 0) return s_.kv_.PopN(id, 0);
    s_.Commit(id, tokens);
  }
  void Pop(int64_t id) {
    Tokens& tokens = s_.tokens_[id];
    const int count = Random(tokens.size() + 1);
    s_.kv_.PopN(id, count);
    tokens.resize(tokens.size() - count);
  }
  void Fork(int64_t id) {
    const int64_t child = next_id_++;
    const int length = Random(s_.tokens_[id].size() + 1);
    if (Random(2) == 0) Insert(id);
    forked_.insert({id, child});
    s_.kv_.ForkSequence(id, child, length);
    s_.tokens_[child].assign(s_.tokens_[id].begin(), s_.tokens_[id].begin() + length);
  }
  void Insert(int64_t id) {
    known_.insert(s_.tokens_[id]);
    s_.Insert(id);
    if (forked_.contains(id)) return;  // may share pages that the tree cannot take
    ASSERT_EQ(s_.Cached(s_.tokens_[id]), std::ssize(s_.tokens_[id]));
  }

  void Pin() {
    Tokens tokens = RandomTokens(60);
    tokens.resize(s_.Cached(tokens));
    if (tokens.empty()) return;
    const std::vector<PinnedPrefix> before = s_.cache_->pinned_prefixes();
    try {
      pins_[s_.cache_->Pin(tokens)] = tokens;
    } catch (const InvalidRequest&) {
      ASSERT_EQ(s_.cache_->pinned_prefixes().size(), before.size());
    }
  }
  void Unpin() {
    if (pins_.empty()) return;
    s_.cache_->Unpin(pins_.begin()->first);
    pins_.erase(pins_.begin());
  }
  void CheckPins() {
    for (const auto& [id, tokens] : pins_) ASSERT_EQ(s_.Cached(tokens), std::ssize(tokens));
    ASSERT_LE(s_.cache_->num_pinned_pages(), limits_.max_pinned_pages);
  }

  // The longest prefix that any sequence had when it was shown to the cache.
  int64_t LongestKnown(const Tokens& tokens) const {
    int64_t longest = 0;
    for (const Tokens& other : known_) {
      const size_t most = std::min(tokens.size(), other.size());
      const auto differ = std::mismatch(tokens.begin(), tokens.begin() + most, other.begin()).first;
      longest = std::max<int64_t>(longest, differ - tokens.begin());
    }
    return longest;
  }

  std::mt19937 rng_;
  const PrefixCacheLimits limits_;
  Sequences s_;
  std::map<int64_t, Tokens> pins_;
  std::set<Tokens> known_;
  std::set<int64_t> forked_;
  int64_t next_id_ = 0;
};

TEST(PrefixCacheSimulation, EverySequenceReadsItsOwnTokens) {
  int64_t num_hits = 0;
  int64_t num_evicted = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(seed);
    simulation.Run(300);
    if (::testing::Test::HasFailure()) return;
    num_hits += simulation.num_hits;
    num_evicted += simulation.num_evicted;
  }
  EXPECT_GT(num_hits, 1000);
  EXPECT_GT(num_evicted, 1000);
}

// Every sequence finds the longest prefix that its own space has, whatever others have.
TEST(PrefixCache, SpacesShareNothing) {
  constexpr int64_t kSpaces[] = {0, 7, -7, int64_t{1} << 62};
  std::mt19937 random(3);
  PagedKvCache kv(4096, kPageTokens);
  PrefixCache cache(&kv, {});
  std::map<int64_t, std::vector<Tokens>> known;
  for (int64_t id = 0; id < 300; ++id) {
    const int64_t space = kSpaces[random() % std::size(kSpaces)];
    Tokens tokens(2 + random() % 60);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 8 == 0);
    int64_t expected = 0;
    for (const Tokens& other : known[space]) {
      const auto end = std::ranges::mismatch(tokens, other).in1;
      expected = std::max(expected, static_cast<int64_t>(end - tokens.begin()));
    }
    EXPECT_EQ(cache.Find(tokens, space).length, expected);
    const int64_t length = std::min(expected, std::ssize(tokens) - 1);
    cache.StartSequence(id, std::span(tokens).first(length), space);
    std::vector<PageCopy> copies;
    kv.Reserve(id, std::ssize(tokens) - length, &copies);
    kv.Commit(id, std::ssize(tokens) - length);
    cache.Insert(id, tokens, space);
    kv.RemoveSequence(id);
    known[space].push_back(tokens);
    cache.Audit();
  }
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

}  // namespace
}  // namespace mlc_native
