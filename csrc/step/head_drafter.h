// HeadDrafter: a draft head (models/draft_head.h) that guesses for running sequences.
//
// The head reads hidden states of the target. Each step of the target writes those of its rows to
// places of a StateMemory, of prompts, too, while they are prefilled, and the head reads them
// there: they stay on the device. The row of position p reads the state at p and the token at p +
// 1, so a row waits until that token is known. It is fed with the next guess of its sequence; while
// a sequence gets none, DraftHead::kBulk rows are fed together, which costs little more than one.
// Guesses are greedy, and those of all sequences are computed together.
//
// The head has pages of its own, as many as its Model was allocated with, and keeps what it has
// computed in a prefix cache of its own. A sequence of which the target takes the first tokens from
// its cache starts from the head's rows of the same tokens. (The last of them may have read another
// next token.) Where the head lacks some, it starts with the first state that it sees; then the
// head's positions begin there, and nothing of the sequence is cached. A rest drops what is known
// of running sequences.
//
// Behind a step in flight (ProposeAhead), the head also reads the states of that step and the
// tokens that it draws. Of the results only the guesses are kept; the rest is computed again when
// the tokens are known.
//
// Owned by the engine; engine's thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kv/cache_space.h"
#include "kv/paged_kv_cache.h"
#include "kv/prefix_cache.h"
#include "models/draft_head.h"
#include "step/batch_drafter.h"
#include "step/draft_chain.h"

namespace mlc_native {

class HeadDrafter final : public BatchDrafter {
 public:
  // Allocates the memory of the head. The target, which makes the memory for its states, outlives
  // the drafter. Requires: the metadata of the head has a draft_head.
  HeadDrafter(std::unique_ptr<Model> head, Model& target, const Sizes& sizes, const Log& log = {});

  void Propose(std::span<const Wish> wishes) override;
  StepQueue* queue() override { return head_.model().step_queue(); }
  void ProposeAhead(std::span<const Wish> wishes, TokenMemory* tokens) override;
  void Keep(int64_t sequence_id, int64_t position) override;
  HiddenStates Watch(std::span<const WatchedSlice> slices) override;
  void Collected() noexcept override;
  void Rest(bool rests) override;
  void Unwatch() noexcept override;
  void Fork(int64_t parent_id, int64_t child_id, const std::vector<int32_t>& child_tokens) override;
  // Its rows go to the prefix cache, also those whose states have not been fed yet.
  void Forget(int64_t sequence_id) override;

  void Clear() override { cache_.Clear(); }
  const PagedKvCache& kv() const override { return kv_; }
  void Audit() const override;

 private:
  // A sequence of the target. The head's rows of positions [begin, end) are in kv_, and the states
  // of [end, end + places) in states_, the last ones when their steps are collected.
  struct Known {
    const std::vector<int32_t>* tokens = nullptr;
    CacheSpace space{};
    int64_t begin = 0;
    std::vector<int32_t> places{};
    // Of `places`, by the number of the forward that writes them.
    std::array<int64_t, StepQueue::kMaxInFlight> in_flight{};
    const Wish* wish = nullptr;  // of the call that is being served
  };

  static int64_t& InFlight(Known& known, int64_t forward) {
    return known.in_flight[static_cast<size_t>(forward) % known.in_flight.size()];
  }
  static int64_t NumInFlight(const Known& known);
  int64_t EndOf(int64_t id) const { return known_[id].begin + kv_.length(id); }
  // Places of states_, which branches of a sequence share.
  void AddPlace(Known* known);
  void Hold(std::span<const int32_t> places);
  void Release(std::span<const int32_t> places);
  // Keeps the first `num_kept` states of the sequence.
  void Truncate(int64_t id, int64_t num_kept);
  // Makes so many places free; sequences whose states are in the way are dropped.
  void MakeRoom(int64_t num_places);
  // Makes the rows and the states of the sequence end where the slice begins. False if they cannot,
  // because that is not known; then nothing is known of the sequence.
  bool Align(const WatchedSlice& slice);
  // The sequence has no rows then, and the first one will be that of this position.
  void RestartRows(int64_t id, int64_t position);
  // The number of states whose next tokens are known.
  int64_t NumReady(int64_t id) const;
  // Adds what the sequence can feed to work_, if anything, and feeds what is there before if there
  // is no room.
  void AddReady(int64_t id);
  // Adds the first states of the sequence. Requires: they are ready, and there is room.
  void AddWork(int64_t id, int64_t num_rows);
  // Feeds work_ and hands out the guesses.
  void RunWork();
  void ClearWork() noexcept;
  // Adds what the sequence can feed, with what is in flight, to chain_work_.
  void AddAhead(int64_t id);
  void RunAhead(TokenMemory* tokens);
  // Feeds what the sequence has; if that fails, the sequence is dropped.
  void FeedReady(int64_t id) noexcept;
  void Drop(int64_t id) noexcept;

  DraftHead head_;
  const Sizes sizes_;
  const std::unique_ptr<StateMemory> states_;
  PagedKvCache kv_;
  PrefixCache cache_;
  std::vector<Known> known_;  // by sequence id
  bool rests_ = false;

  std::vector<int32_t> num_holders_;  // of each place
  std::vector<int32_t> free_places_;

  // Forwards so far that were watched, and those of them that are not watched any more.
  int64_t num_watched_ = 0;
  int64_t num_collected_ = 0;
  // Of the last one.
  std::vector<int32_t> rows_;
  std::vector<int32_t> places_;  // as rows_

  // Of the forwards that are being made.
  std::vector<DraftWork> work_;
  std::vector<int64_t> work_ids_;  // as work_
  int64_t work_rows_ = 0;
  std::vector<PageCopy> copies_;
  DraftChain chain_;
  std::vector<DraftChain::Work> chain_work_;  // as work_ids_
};

}  // namespace mlc_native
