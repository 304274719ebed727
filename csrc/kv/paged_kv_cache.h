// PagedKvCache maps each sequence to the pages of the KV cache that hold its tokens.
//
//   pages       |  page 0  |  page 1  |  page 2  |  page 3  |
//   tokens      [0 ......... owned_from ... length) ........ capacity)
//               may be shared           | private, reserved for later forwards
//
// 0 <= owned_from <= length <= capacity. Tokens [0, length) are in the cache. Forks and the prefix
// cache may share their pages. Only the owner of its tail writes a shared page: positions from
// owned_from on were written by this sequence and are visible to no other reader. For any other
// sequence Reserve replaces the page to be written by a private one (copy-on-write at token
// granularity) and reports the copy that the model must carry out before the forward. The shared
// page stays referenced until the next Commit, so that PopN(id, 0) undoes a Reserve whose copy or
// forward failed. Integers only; engine's thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/page_pool.h"
#include "mlc_native/detail/page.h"

namespace mlc_native {

class PagedKvCache {
 public:
  PagedKvCache(int64_t num_pages, int64_t page_size, Log log = {});

  // Sequence ids are small non-negative integers (EngineInternalIDManager). Adding an id that is
  // live, or using one that is not, throws InternalError.
  void AddSequence(int64_t seq_id) { AddSequence(seq_id, 0, {}); }
  // Adds a sequence that starts with `length` tokens in shared pages. Changes nothing if it throws.
  void AddSequence(int64_t seq_id, int64_t length, std::span<const Page> pages);
  // The child starts with the first `length` tokens of the parent, sharing their pages.
  void ForkSequence(int64_t parent_id, int64_t child_id, int64_t length);
  void RemoveSequence(int64_t seq_id);
  bool HasSequence(int64_t seq_id) const;

  // Pages that Reserve would take from the pool, including the one for copy-on-write. Every
  // sequence that writes into a shared page takes a copy of its own, so the needs of several
  // sequences add up.
  int64_t PagesNeeded(int64_t seq_id, int64_t num_tokens) const;
  // The same for a sequence that does not exist yet. It will start with the first `shared` of its
  // num_tokens tokens in shared pages and compute the rest.
  int64_t PagesNeededForNew(int64_t num_tokens, int64_t shared = 0) const {
    return NumPages(num_tokens) - shared / page_size_;
  }
  // Grows the capacity to at least length + num_tokens with private pages. A reservation lasts
  // until it is committed, popped or removed. Requires: PagesNeeded pages are available.
  void Reserve(int64_t seq_id, int64_t num_tokens, std::vector<PageCopy>* copies);
  // length += num_tokens. Requires: the tokens are reserved.
  void Commit(int64_t seq_id, int64_t num_tokens);
  // Drops the last num_tokens tokens and all reservations, and undoes a copy-on-write that has not
  // been committed.
  void PopN(int64_t seq_id, int64_t num_tokens);

  // For the prefix cache: other sequences may read tokens [0, length) from now on.
  void ShowTokens(int64_t seq_id, int64_t length);
  std::span<const Page> pages(int64_t seq_id) const { return Get(seq_id).pages; }
  // Replaces a full page by one with the same contents. Requires: no copy-on-write is pending.
  void ReplacePage(int64_t seq_id, int64_t index, const Page& page);

  int64_t length(int64_t seq_id) const { return Get(seq_id).length; }
  // Page ids covering [0, capacity); valid until the sequence changes.
  std::span<const int32_t> block_table(int64_t seq_id) const { return Get(seq_id).page_ids; }

  int64_t num_sequences() const { return num_sequences_; }
  int64_t page_size() const { return page_size_; }
  const PagePool& pool() const { return pool_; }
  PagePool& pool() { return pool_; }
  // Checks that every page's reference count equals the number of its holders: block tables, and
  // `other_holders`, the number of references held elsewhere for each page (empty: none). Throws
  // InternalError.
  void Audit(std::vector<int32_t> other_holders = {}) const;
  // No sequence writes in place over what the prefix cache shows. `shown_until` has for each page
  // the position behind the last token that is shown of it, 0 for none. Throws InternalError.
  void AuditShown(std::span<const int64_t> shown_until) const;

 private:
  struct Sequence {
    bool live = false;
    int64_t length = 0;
    int64_t owned_from = 0;
    std::vector<Page> pages;
    std::vector<int32_t> page_ids;  // ids of `pages`
    Page replaced;                  // the shared page that a pending copy-on-write replaces
  };
  Sequence& Get(int64_t seq_id);
  const Sequence& Get(int64_t seq_id) const;
  // Returns an empty slot for the id, which is not live yet.
  Sequence& NewSequence(int64_t seq_id);
  int64_t NumPages(int64_t num_tokens) const { return (num_tokens + page_size_ - 1) / page_size_; }
  // True if the next token goes to a shared page whose tail this sequence does not own.
  bool WritesSharedPage(const Sequence& seq) const;

  const int64_t page_size_;
  PagePool pool_;
  std::vector<Sequence> sequences_;  // index = sequence id
  int64_t num_sequences_ = 0;
};

}  // namespace mlc_native
