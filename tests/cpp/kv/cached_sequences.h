// Sequences over a prefix cache, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "kv/prefix_cache.h"

namespace mlc_native {

inline constexpr int64_t kPageTokens = 16;
using Tokens = std::vector<int32_t>;

// `length` tokens that differ with `salt` from the first on.
inline Tokens Make(int64_t length, int32_t salt = 0) {
  Tokens tokens(length);
  for (int64_t i = 0; i < length; ++i) tokens[i] = static_cast<int32_t>(i + 1000 * salt);
  return tokens;
}

inline Tokens Join(Tokens a, const Tokens& b) {
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

}  // namespace mlc_native
