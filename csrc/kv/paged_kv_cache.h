// PagedKvCache maps sequences to pages: who owns which tokens of the KV cache.
//
// Per sequence: 0 <= length <= capacity; tokens [0, length) are in the cache, [length, capacity) is
// reserved for the forward in flight. Forked sequences share pages; Reserve makes the page that
// will be written private (copy-on-write at token granularity) and reports the copy that the model
// must carry out before the forward. Integers only. Engine's thread only.
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
  // The child starts with the first `length` tokens of the parent, sharing its pages.
  void ForkSequence(int64_t parent_id, int64_t child_id, int64_t length);
  void RemoveSequence(int64_t seq_id);
  bool HasSequence(int64_t seq_id) const;

  // Pages that Reserve would take from the pool, including the copy-on-write one.
  int64_t PagesNeeded(int64_t seq_id, int64_t num_tokens) const;
  // Grows capacity to length + num_tokens with private pages. Call only with enough free pages.
  void Reserve(int64_t seq_id, int64_t num_tokens, std::vector<PageCopy>* copies);
  // length += num_tokens, which must be reserved.
  void Commit(int64_t seq_id, int64_t num_tokens);
  // Drops the last num_tokens tokens and everything reserved.
  void PopN(int64_t seq_id, int64_t num_tokens);

  int64_t length(int64_t seq_id) const;
  // Page ids covering [0, capacity); valid until the sequence changes.
  std::span<const int32_t> block_table(int64_t seq_id) const;

  int64_t num_sequences() const { return num_sequences_; }
  int64_t page_size() const { return page_size_; }
  const PagePool& pool() const { return pool_; }
  // Every page's reference count equals the number of block tables that hold it. Throws
  // InternalError.
  void Audit() const;

 private:
  struct Sequence {
    bool live = false;
    int64_t length = 0;
    std::vector<Page> pages;
    std::vector<int32_t> page_ids;  // ids of `pages`
  };
  Sequence& Get(int64_t seq_id);
  const Sequence& Get(int64_t seq_id) const;

  const int64_t page_size_;
  PagePool pool_;
  std::vector<Sequence> sequences_;  // index = sequence id
  int64_t num_sequences_ = 0;
};

}  // namespace mlc_native
