#include "kv/paged_kv_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "support/check.h"

namespace mlc_native {
namespace {

constexpr int64_t kTokensOfAPage = 16;

// A cache with one sequence operation per line.
class PagedKvCacheTest : public ::testing::Test {
 protected:
  explicit PagedKvCacheTest(int64_t num_pages = 8) : kv_(num_pages, kTokensOfAPage) {}
  ~PagedKvCacheTest() override { kv_.Audit(); }

  void Add(int64_t id, int64_t length) {
    kv_.AddSequence(id);
    Append(id, length);
  }
  void Append(int64_t id, int64_t length) {
    if (length == 0) return;
    kv_.Reserve(id, length, &copies_);
    kv_.Commit(id, length);
  }
  std::vector<int32_t> Table(int64_t id) const {
    return {kv_.block_table(id).begin(), kv_.block_table(id).end()};
  }
  int64_t free() const { return kv_.pool().num_free(); }

  PagedKvCache kv_;
  std::vector<PageCopy> copies_;
};

TEST_F(PagedKvCacheTest, PagesGrowWithTokens) {
  Add(0, 16);
  EXPECT_EQ(free(), 7);
  EXPECT_EQ(kv_.PagesNeeded(0, 1), 1);
  Append(0, 1);
  EXPECT_EQ(free(), 6);
  EXPECT_EQ(kv_.PagesNeeded(0, 15), 0);
  EXPECT_EQ(kv_.PagesNeeded(0, 16), 1);
  EXPECT_EQ(kv_.length(0), 17);
  EXPECT_EQ(kv_.block_table(0).size(), 2u);
  kv_.RemoveSequence(0);
  EXPECT_EQ(free(), 8);
  EXPECT_TRUE(copies_.empty());
}

TEST_F(PagedKvCacheTest, AReservationOutlivesAPartialCommit) {
  kv_.AddSequence(0);
  kv_.Reserve(0, 50, &copies_);
  kv_.Commit(0, 10);
  EXPECT_EQ(free(), 4);
  EXPECT_EQ(kv_.PagesNeeded(0, 40), 0);
  kv_.Reserve(0, 40, &copies_);
  EXPECT_EQ(free(), 4);
  kv_.PopN(0, 0);
  EXPECT_EQ(kv_.length(0), 10);
  EXPECT_EQ(free(), 7);
}

TEST_F(PagedKvCacheTest, ForksShareAndCopyThePageTheyWrite) {
  Add(0, 20);
  kv_.ForkSequence(0, 1, 20);
  kv_.ForkSequence(0, 2, 16);
  EXPECT_EQ(free(), 6);
  EXPECT_EQ(kv_.PagesNeeded(1, 1), 1);
  EXPECT_EQ(kv_.PagesNeeded(2, 1), 1);  // a page of its own, nothing to copy
  kv_.Reserve(1, 1, &copies_);
  kv_.Reserve(2, 1, &copies_);
  ASSERT_EQ(copies_.size(), 1u);
  EXPECT_EQ(copies_[0].src_page, Table(0)[1]);
  EXPECT_EQ(copies_[0].dst_page, Table(1)[1]);
  EXPECT_EQ(Table(1)[0], Table(0)[0]);
  EXPECT_NE(Table(1)[1], Table(0)[1]);
  kv_.Commit(1, 1);
  kv_.Commit(2, 1);
  EXPECT_EQ(kv_.PagesNeeded(0, 1), 0);  // alone on its last page again
  EXPECT_EQ(free(), 4);
}

TEST_F(PagedKvCacheTest, TheSumOfPagesNeededCoversSiblingsThatShareAPage) {
  Add(0, 5);
  for (int64_t child : {1, 2, 3}) kv_.ForkSequence(0, child, 5);
  kv_.RemoveSequence(0);
  EXPECT_EQ(free(), 7);
  int64_t needed = 0;
  for (int64_t child : {1, 2, 3}) needed += kv_.PagesNeeded(child, 1);
  for (int64_t child : {1, 2, 3}) kv_.Reserve(child, 1, &copies_);
  EXPECT_EQ(free(), 7 - needed);
  for (int64_t child : {1, 2, 3}) kv_.Commit(child, 1);
  EXPECT_EQ(free(), 5);  // three private pages, the shared one went back
}

TEST_F(PagedKvCacheTest, PopUndoesACopyOnWriteThatWasNotCommitted) {
  Add(0, 20);
  kv_.ForkSequence(0, 1, 20);
  const std::vector<int32_t> before = Table(1);
  kv_.Reserve(1, 30, &copies_);
  kv_.Audit();
  kv_.PopN(1, 0);
  EXPECT_EQ(Table(1), before);
  EXPECT_EQ(free(), 6);
  copies_.clear();
  Append(1, 1);
  EXPECT_EQ(copies_.size(), 1u);
}

TEST_F(PagedKvCacheTest, PopOfTokensKeepsSharedPagesShared) {
  Add(0, 40);
  kv_.ForkSequence(0, 1, 40);
  kv_.PopN(1, 30);
  EXPECT_EQ(kv_.length(1), 10);
  EXPECT_EQ(kv_.block_table(1).size(), 1u);
  Append(1, 1);
  EXPECT_EQ(copies_.size(), 1u);
  EXPECT_NE(Table(1)[0], Table(0)[0]);
}

TEST_F(PagedKvCacheTest, MisuseIsAnInternalError) {
  Add(0, 20);
  EXPECT_THROW(kv_.AddSequence(0), InternalError);
  EXPECT_THROW(kv_.AddSequence(-1), InternalError);
  EXPECT_THROW(kv_.length(1), InternalError);
  EXPECT_THROW(kv_.RemoveSequence(7), InternalError);
  EXPECT_THROW(kv_.ForkSequence(0, 1, 21), InternalError);
  EXPECT_THROW(kv_.ForkSequence(0, 0, 1), InternalError);
  EXPECT_THROW(kv_.PopN(0, 21), InternalError);
  EXPECT_THROW(kv_.Commit(0, 13), InternalError);  // more than is reserved
  EXPECT_THROW(kv_.Reserve(0, 200, &copies_), InternalError);
  kv_.PopN(0, 0);  // what that Reserve got before it failed
  EXPECT_EQ(free(), 6);
  kv_.RemoveSequence(0);
  EXPECT_THROW(kv_.RemoveSequence(0), InternalError);
}

TEST_F(PagedKvCacheTest, CommitIntoASharedPageIsAnInternalError) {
  Add(0, 20);
  kv_.ForkSequence(0, 1, 20);
  EXPECT_THROW(kv_.Commit(1, 1), InternalError);
}

// Random operations against token lists: `stored` plays the model's memory, every read goes through
// the block table.
class KvSimulation {
 public:
  explicit KvSimulation(uint32_t seed) : rng_(seed), kv_(12, kTokensOfAPage) {}

  void Run(int num_operations) {
    for (int i = 0; i < num_operations; ++i) {
      RandomOperation();
      kv_.Audit();
      for (const auto& [id, tokens] : expected_) Check(id, tokens);
    }
    while (!expected_.empty()) Remove(expected_.begin()->first);
    EXPECT_EQ(kv_.pool().num_used(), 0);
  }

 private:
  int Random(int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(rng_); }
  int64_t RandomLive() { return std::next(expected_.begin(), Random(expected_.size()))->first; }

  void RandomOperation() {
    const int64_t fresh = next_id_;
    if (expected_.empty() || Random(6) == 0) {
      kv_.AddSequence(fresh);
      expected_[next_id_++];
      return;
    }
    const int64_t id = RandomLive();
    switch (Random(6)) {
      case 0: {
        const int length = Random(expected_[id].size() + 1);
        kv_.ForkSequence(id, fresh, length);
        expected_[next_id_++].assign(expected_[id].begin(), expected_[id].begin() + length);
        break;
      }
      case 1:
        Remove(id);
        break;
      case 2: {
        const int count = Random(expected_[id].size() + 1);
        kv_.PopN(id, count);
        expected_[id].resize(expected_[id].size() - count);
        break;
      }
      default:
        Append(id, 1 + Random(20), /*fail=*/Random(4) == 0);
    }
  }

  // A failed forward may have copied pages and written its own slots, without any visible effect.
  void Append(int64_t id, int count, bool fail) {
    if (kv_.PagesNeeded(id, count) > kv_.pool().num_free()) return;
    std::vector<PageCopy> copies;
    const int64_t free_before = kv_.pool().num_free();
    const int64_t needed = kv_.PagesNeeded(id, count);
    kv_.Reserve(id, count, &copies);
    EXPECT_EQ(kv_.pool().num_free(), free_before - needed);
    if (fail && Random(2) == 0) return kv_.PopN(id, 0);  // before the copies were made
    for (const PageCopy& copy : copies) {
      for (int i = 0; i < kTokensOfAPage; ++i) Slot(copy.dst_page, i) = Slot(copy.src_page, i);
    }
    std::vector<int>& tokens = expected_[id];
    for (int i = 0; i < count; ++i) {
      const int64_t position = kv_.length(id) + i;
      Slot(kv_.block_table(id)[position / kTokensOfAPage], position % kTokensOfAPage) =
          next_token_ + i;
    }
    if (fail) return kv_.PopN(id, 0);
    kv_.Commit(id, count);
    for (int i = 0; i < count; ++i) tokens.push_back(next_token_++);
  }

  void Remove(int64_t id) {
    kv_.RemoveSequence(id);
    expected_.erase(id);
  }

  void Check(int64_t id, const std::vector<int>& tokens) {
    ASSERT_EQ(kv_.length(id), static_cast<int64_t>(tokens.size()));
    for (size_t i = 0; i < tokens.size(); ++i) {
      ASSERT_EQ(Slot(kv_.block_table(id)[i / kTokensOfAPage], i % kTokensOfAPage), tokens[i]);
    }
  }

  int& Slot(int32_t page, int64_t offset) { return stored_[page * kTokensOfAPage + offset]; }

  std::mt19937 rng_;
  PagedKvCache kv_;
  std::map<int64_t, int> stored_;
  std::map<int64_t, std::vector<int>> expected_;
  int64_t next_id_ = 0;
  int next_token_ = 1;
};

TEST(PagedKvCacheSimulation, EverySequenceReadsItsOwnTokens) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    KvSimulation(seed).Run(300);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace mlc_native
