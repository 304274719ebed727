// PrefixCache under random operations: every sequence reads its own tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "kv/cached_sequences.h"
#include "kv/prefix_cache.h"
#include "support/error.h"

namespace mlc_native {
namespace {

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

}  // namespace
}  // namespace mlc_native
