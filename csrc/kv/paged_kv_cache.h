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
// forward failed.
//
// A model with recurrent layers has a state in place of their keys and values, in slots that are
// counted like pages. States are never changed: a forward reads the one behind the `length` tokens
// and writes others, which the sequence holds once they are committed. So forks and the prefix
// cache share them without a copy. A sequence goes back only to where it still holds a state: the
// one from which the last forward began, and those that this one left; of a draft model, whose
// forwards follow one reservation, those that all of them left. Integers only; engine's thread
// only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/page_pool.h"
#include "mlc_native/detail/page.h"

namespace mlc_native {

// A sequence holds the state of a forward's beginning and those that the forward leaves without
// draft tokens: behind its last token, behind the one before it, and where another prompt has
// diverged.
inline constexpr int64_t kStatesOfASequence = 4;
inline constexpr int64_t kStatesOfASlice = kStatesOfASequence - 1;

// A state that a forward leaves: behind so many of its tokens. With 0, the one that it begins from.
struct StatePlace {
  int64_t num_tokens = 0;
  bool is_kept = false;  // for the prefix cache (kept_states)

  bool operator==(const StatePlace&) const = default;
};

// A state of the first `position` tokens of a sequence.
struct PlacedState {
  int64_t position = 0;
  Page slot;
};

class PagedKvCache {
 public:
  // num_slots: of the states of recurrent layers; 0: the model has none.
  PagedKvCache(int64_t num_pages, int64_t page_size, Log log = {}, int64_t num_slots = 0);

  // Sequence ids are small non-negative integers (EngineInternalIDManager). Adding an id that is
  // live, or using one that is not, throws InternalError.
  void AddSequence(int64_t seq_id) { AddSequence(seq_id, 0, {}); }
  // Adds a sequence that starts with `length` tokens in shared pages, and the slot with the state
  // behind them. Changes nothing if it throws.
  void AddSequence(int64_t seq_id, int64_t length, std::span<const Page> pages, Page slot = {});
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
  // Takes slots for states behind further tokens, ascending, the last one behind all that will be
  // committed. Drops the states that the sequence can go back to. As with pages, several commits
  // may follow, each up to one of the places. Requires: slots are available.
  void ReserveStates(int64_t seq_id, std::span<const StatePlace> places);
  // Keeps the state behind the `length` tokens, if the sequence holds it; nothing without memory.
  void KeepState(int64_t seq_id) noexcept;
  // Those that are kept for the prefix cache, ascending, until it has them.
  std::span<const PlacedState> kept_states(int64_t seq_id) const { return Get(seq_id).kept; }
  // Those of the first so many tokens; the prefix cache gets later ones when their steps are
  // collected.
  void DropKeptStates(int64_t seq_id, int64_t num_tokens);
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
  bool has_states() const { return slots_.num_total() > 0; }
  // The slot with the state behind the `length` tokens; -1 if the sequence holds none.
  int32_t state_slot(int64_t seq_id) const;
  // What ReserveStates has reserved behind the `length` tokens; valid until the sequence changes.
  std::span<const RecurrentWrite> state_writes(int64_t seq_id) const { return Get(seq_id).writes; }
  // The furthest length up to `length` that the sequence can go back to: where it holds a state, or
  // none of its tokens. Without recurrent layers, `length`.
  int64_t LengthToGoOnFrom(int64_t seq_id, int64_t length) const;
  // Page ids covering [0, capacity); valid until the sequence changes.
  std::span<const int32_t> block_table(int64_t seq_id) const { return Get(seq_id).page_ids; }

  int64_t num_sequences() const { return num_sequences_; }
  // How many more there are slots of states for; of a model with recurrent layers.
  int64_t num_new_sequences() const {
    return (slots_.num_total() - num_spare_slots()) / kStatesOfASequence - num_sequences_;
  }
  // Slots for states that are pinned.
  int64_t num_spare_slots() const { return std::min<int64_t>(slots_.num_total() / 4, 8); }
  int64_t page_size() const { return page_size_; }
  const PagePool& pool() const { return pool_; }
  PagePool& pool() { return pool_; }
  const PagePool& slots() const { return slots_; }
  PagePool& slots() { return slots_; }
  // Checks that every page's reference count equals the number of its holders: block tables, and
  // `other_holders`, the number of references held elsewhere for each page (empty: none). Likewise
  // for slots. Throws InternalError.
  void Audit(std::vector<int32_t> other_holders = {}, std::vector<int32_t> of_slots = {}) const;
  // No sequence writes in place over what the prefix cache shows. `shown_until` has for each page
  // the position behind the last token that is shown of it, 0 for none. Throws InternalError.
  void AuditShown(std::span<const int64_t> shown_until) const;

 private:
  struct Sequence {
    bool live = false;
    int64_t length = 0;
    int64_t owned_from = 0;
    std::vector<Page> pages;
    std::vector<int32_t> page_ids;       // ids of `pages`
    Page replaced;                       // the shared page that a pending copy-on-write replaces
    std::vector<PlacedState> states;     // ascending, up to `length`
    std::vector<PlacedState> reserved;   // ascending, behind it
    std::vector<bool> is_reserved_kept;  // of `reserved`
    std::vector<PlacedState> kept;       // ascending, up to `length`
    std::vector<RecurrentWrite> writes;  // of `reserved`
  };
  Sequence& Get(int64_t seq_id);
  const Sequence& Get(int64_t seq_id) const;
  // Returns an empty slot for the id, which is not live yet.
  Sequence& NewSequence(int64_t seq_id);
  int64_t NumPages(int64_t num_tokens) const { return (num_tokens + page_size_ - 1) / page_size_; }
  // True if the next token goes to a shared page whose tail this sequence does not own.
  bool WritesSharedPage(const Sequence& seq) const;

  static void DropReserved(Sequence* seq);
  // Makes the reserved states up to `length` those of the sequence.
  static void CommitStates(Sequence* seq);
  void AuditSlots(std::vector<int32_t> holders) const;

  const int64_t page_size_;
  PagePool pool_;
  PagePool slots_;
  std::vector<Sequence> sequences_;  // index = sequence id
  int64_t num_sequences_ = 0;
};

}  // namespace mlc_native
