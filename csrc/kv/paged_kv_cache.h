// PagedKvCache maps sequences to pages: who owns which tokens of the KV cache.
//
// Per sequence: 0 <= length <= capacity; tokens [0, length) are in the cache, pages of [length,
// capacity) are reserved for forwards to come and always private. Forked sequences share pages;
// Reserve makes the page that will be written private (copy-on-write at token granularity) and
// reports the copy that the model must carry out before the forward. Until the next Commit the
// shared page is held too, so that PopN(id, 0) undoes a Reserve whose copy or forward failed.
// Integers only. Engine's thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/page_pool.h"
#include "support/page.h"

namespace mlc_native {

class PagedKvCache {
 public:
  PagedKvCache(int64_t num_pages, int64_t page_size);

  // Sequence ids are small non-negative integers (EngineInternalIDManager). Adding a live id, or
  // using one that is not live, throws InternalError.
  void AddSequence(int64_t seq_id);
  // The child starts with the first `length` tokens of the parent, sharing their pages.
  void ForkSequence(int64_t parent_id, int64_t child_id, int64_t length);
  void RemoveSequence(int64_t seq_id);
  bool HasSequence(int64_t seq_id) const;

  // Pages that Reserve would take from the pool, including the copy-on-write one. Every sequence
  // that writes into a shared page takes a copy, so a sum over sequences is what they take
  // together.
  int64_t PagesNeeded(int64_t seq_id, int64_t num_tokens) const;
  // The same for a sequence that is not there yet.
  int64_t PagesNeededForNew(int64_t num_tokens) const { return NumPages(num_tokens); }
  // Grows capacity to at least length + num_tokens with private pages. What is reserved stays
  // until it is committed, popped or removed. Call only with enough free pages.
  void Reserve(int64_t seq_id, int64_t num_tokens, std::vector<PageCopy>* copies);
  // length += num_tokens, which must be reserved.
  void Commit(int64_t seq_id, int64_t num_tokens);
  // Drops the last num_tokens tokens and everything reserved, and undoes a copy-on-write that is
  // not committed.
  void PopN(int64_t seq_id, int64_t num_tokens);

  int64_t length(int64_t seq_id) const { return Get(seq_id).length; }
  // Page ids covering [0, capacity); valid until the sequence changes.
  std::span<const int32_t> block_table(int64_t seq_id) const { return Get(seq_id).page_ids; }

  int64_t num_sequences() const { return num_sequences_; }
  int64_t page_size() const { return page_size_; }
  const PagePool& pool() const { return pool_; }
  // Every page's reference count equals the number of block tables that hold it. Throws
  // InternalError.
  void Audit() const;

 private:
  struct Sequence {
    bool live = false;
    bool was_forked = false;  // from or to another one: its pages may be shared
    int64_t length = 0;
    std::vector<Page> pages;
    std::vector<int32_t> page_ids;  // ids of `pages`
    Page replaced;                  // the shared page that an uncommitted copy-on-write stands for
  };
  Sequence& Get(int64_t seq_id);
  const Sequence& Get(int64_t seq_id) const;
  Sequence& NewSequence(int64_t seq_id);
  int64_t NumPages(int64_t num_tokens) const { return (num_tokens + page_size_ - 1) / page_size_; }
  // The page that holds the last token and has room for more is shared.
  bool WritesSharedPage(const Sequence& seq) const;

  const int64_t page_size_;
  PagePool pool_;
  std::vector<Sequence> sequences_;  // index = sequence id
  int64_t num_sequences_ = 0;
};

}  // namespace mlc_native
