// PagedKvCache maps sequences to pages: who owns which tokens of the KV cache.
//
// Per sequence: 0 <= length <= capacity; tokens [0, length) are in the cache, pages of [length,
// capacity) are reserved for forwards to come and always private. Sequences share pages with forks
// and with the prefix cache. A page that is shared is written only by the sequence that owns its
// tail: positions from owned_from on were written by this sequence alone and shown to nobody. For
// any other sequence Reserve makes the page that will be written private (copy-on-write at token
// granularity) and reports the copy that the model must carry out before the forward. Until the
// next Commit the shared page is held too, so that PopN(id, 0) undoes a Reserve whose copy or
// forward failed. Integers only. Engine's thread only.
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
  void AddSequence(int64_t seq_id) { AddSequence(seq_id, 0, {}); }
  // Starts with `length` tokens in shared pages. Nothing has changed when it throws.
  void AddSequence(int64_t seq_id, int64_t length, std::span<const Page> pages);
  // The child starts with the first `length` tokens of the parent, sharing their pages.
  void ForkSequence(int64_t parent_id, int64_t child_id, int64_t length);
  void RemoveSequence(int64_t seq_id);
  bool HasSequence(int64_t seq_id) const;

  // Pages that Reserve would take from the pool, including the copy-on-write one. Every sequence
  // that writes into a shared page takes a copy, so a sum over sequences is what they take
  // together.
  int64_t PagesNeeded(int64_t seq_id, int64_t num_tokens) const;
  // The same for a sequence that is not there yet: it will start with the first `shared` of its
  // num_tokens tokens in shared pages, and compute the rest.
  int64_t PagesNeededForNew(int64_t num_tokens, int64_t shared = 0) const {
    return NumPages(num_tokens) - shared / page_size_;
  }
  // Grows capacity to at least length + num_tokens with private pages. What is reserved stays
  // until it is committed, popped or removed. Call only with enough free pages.
  void Reserve(int64_t seq_id, int64_t num_tokens, std::vector<PageCopy>* copies);
  // length += num_tokens, which must be reserved.
  void Commit(int64_t seq_id, int64_t num_tokens);
  // Drops the last num_tokens tokens and everything reserved, and undoes a copy-on-write that is
  // not committed.
  void PopN(int64_t seq_id, int64_t num_tokens);

  // For the prefix cache. From now on others may read the tokens [0, length).
  void ShowTokens(int64_t seq_id, int64_t length);
  std::span<const Page> pages(int64_t seq_id) const { return Get(seq_id).pages; }
  // Puts a page with the same contents in the place of a full one; not before a Reserve's Commit.
  void ReplacePage(int64_t seq_id, int64_t index, const Page& page);

  int64_t length(int64_t seq_id) const { return Get(seq_id).length; }
  // Page ids covering [0, capacity); valid until the sequence changes.
  std::span<const int32_t> block_table(int64_t seq_id) const { return Get(seq_id).page_ids; }

  int64_t num_sequences() const { return num_sequences_; }
  int64_t page_size() const { return page_size_; }
  const PagePool& pool() const { return pool_; }
  PagePool& pool() { return pool_; }
  // Every page's reference count equals the number of its holders: block tables, and
  // `other_holders`, the references held elsewhere by page (empty: none). Throws InternalError.
  void Audit(std::vector<int32_t> other_holders = {}) const;

 private:
  struct Sequence {
    bool live = false;
    int64_t length = 0;
    int64_t owned_from = 0;
    std::vector<Page> pages;
    std::vector<int32_t> page_ids;  // ids of `pages`
    Page replaced;                  // the shared page that an uncommitted copy-on-write stands for
  };
  Sequence& Get(int64_t seq_id);
  const Sequence& Get(int64_t seq_id) const;
  // A slot for the id, empty and not live yet.
  Sequence& NewSequence(int64_t seq_id);
  int64_t NumPages(int64_t num_tokens) const { return (num_tokens + page_size_ - 1) / page_size_; }
  // The page that the next token goes to is shared and its tail is not owned.
  bool WritesSharedPage(const Sequence& seq) const;

  const int64_t page_size_;
  PagePool pool_;
  std::vector<Sequence> sequences_;  // index = sequence id
  int64_t num_sequences_ = 0;
};

}  // namespace mlc_native
