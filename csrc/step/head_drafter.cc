#include "step/head_drafter.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

#include "support/check.h"

namespace mlc_native {

namespace {

// The head, with its memory.
DraftHead Allocated(std::unique_ptr<Model> model, const BatchDrafter::Sizes& sizes) {
  MLC_CHECK(sizes.max_rows >= sizes.max_sequences) << sizes.max_rows;
  DraftHead head(std::move(model));
  head.Allocate(sizes.num_pages, sizes.max_rows, sizes.max_sequences);
  return head;
}

}  // namespace

HeadDrafter::HeadDrafter(std::unique_ptr<Model> head, Model& target, const Sizes& sizes,
                         const Log& log)
    : head_(Allocated(std::move(head), sizes)),
      sizes_(sizes),
      // Those of the steps in flight, and those that sequences keep.
      states_(target.MakeStateMemory(
          DraftHead::StepsInFlight(head_.model()) * sizes.max_rows +
              sizes.max_sequences * DraftHead::kBulk,
          std::ssize(head_.info().target_streams) * target.metadata().hidden_size)),
      kv_(sizes.num_pages, kKvPageSize, log),
      cache_(&kv_, {}),
      num_holders_(static_cast<size_t>(states_->num_rows())) {
  free_places_.reserve(num_holders_.size());
  for (int64_t place = states_->num_rows(); place > 0; --place) {
    free_places_.push_back(static_cast<int32_t>(place - 1));
  }
}

// ---- States

void HeadDrafter::AddPlace(Known* known) {
  MLC_CHECK(!free_places_.empty()) << "no place for a hidden state";
  const int32_t place = free_places_.back();
  known->places.push_back(place);  // may throw, and nothing has changed then
  free_places_.pop_back();
  num_holders_[static_cast<size_t>(place)] = 1;
}

void HeadDrafter::Hold(std::span<const int32_t> places) {
  for (const int32_t place : places) ++num_holders_[static_cast<size_t>(place)];
}

void HeadDrafter::Release(std::span<const int32_t> places) {
  for (const int32_t place : places) {
    // There is room for all of them, so this does not allocate.
    if (--num_holders_[static_cast<size_t>(place)] == 0) free_places_.push_back(place);
  }
}

void HeadDrafter::Truncate(int64_t id, int64_t num_kept) {
  std::vector<int32_t>& places = known_[id].places;
  Release(std::span(places).subspan(static_cast<size_t>(num_kept)));
  places.resize(static_cast<size_t>(num_kept));
}

void HeadDrafter::MakeRoom(int64_t num_places) {
  for (int64_t id = 0; id < std::ssize(known_); ++id) {
    if (std::ssize(free_places_) >= num_places) return;
    if (!known_[id].places.empty()) Drop(id);
  }
}

// ---- Watching the target

// States of a rest would be missing behind what is known now.
void HeadDrafter::Rest(bool rests) {
  rests_ = rests;
  for (int64_t id = 0; rests && id < std::ssize(known_); ++id) Drop(id);
}

HiddenStates HeadDrafter::Watch(std::span<const WatchedSlice> slices) {
  if (rests_ || slices.empty()) return {};
  const int64_t forward = num_watched_++;
  int64_t num_rows = 0;
  for (const WatchedSlice& slice : slices) num_rows += slice.num_rows;
  // Behind the tokens that are known, states are of steps in flight or of guesses that were wrong.
  for (int64_t id = 0; id < std::ssize(known_); ++id) {
    const Known& known = known_[id];
    if (!known.places.empty() && NumInFlight(known) == 0) Truncate(id, NumReady(id));
  }
  MakeRoom(num_rows);
  rows_.clear();
  places_.clear();
  for (const WatchedSlice& slice : slices) {
    if (!Align(slice)) continue;
    Known& known = known_[slice.sequence_id];
    for (int32_t row = 0; row < slice.num_rows; ++row) {
      AddPlace(&known);
      ++InFlight(known, forward);
      rows_.push_back(slice.first_row + row);
      places_.push_back(known.places.back());
    }
  }
  if (rows_.empty()) {
    --num_watched_;
    return {};
  }
  return {.rows = rows_,
          .streams = head_.info().target_streams,
          .memory = states_.get(),
          .places = places_};
}

int64_t HeadDrafter::NumInFlight(const Known& known) {
  return std::accumulate(known.in_flight.begin(), known.in_flight.end(), int64_t{0});
}

void HeadDrafter::Collected() noexcept {
  const int64_t forward = num_collected_++;
  for (Known& known : known_) InFlight(known, forward) = 0;
}

void HeadDrafter::Unwatch() noexcept {
  const int64_t forward = --num_watched_;
  for (int64_t id = 0; id < std::ssize(known_); ++id) {
    Known& known = known_[id];
    const int64_t num_lost = std::exchange(InFlight(known, forward), 0);
    if (num_lost > 0) Truncate(id, std::ssize(known.places) - num_lost);
  }
}

bool HeadDrafter::Align(const WatchedSlice& slice) {
  const int64_t id = slice.sequence_id;
  const int64_t position = slice.position;
  if (id >= std::ssize(known_)) known_.resize(static_cast<size_t>(id) + 1);
  Known& known = known_[id];
  if (kv_.HasSequence(id)) {
    const int64_t num_states = std::ssize(known.places);
    const int64_t surplus = EndOf(id) + num_states - position;
    const bool follows = NumInFlight(known) == 0 ? surplus >= 0 : surplus == 0;
    if (follows && position >= known.begin) {
      const int64_t num_dropped = std::min(surplus, num_states);
      Truncate(id, num_states - num_dropped);
      kv_.PopN(id, surplus - num_dropped);
      return true;
    }
  }
  Drop(id);
  // Behind guesses in flight, the position is only the furthest that it can be.
  if (position > std::ssize(*slice.tokens)) return false;
  known = {.tokens = slice.tokens, .space = slice.space};
  const auto tokens = std::span(*slice.tokens).first(static_cast<size_t>(position));
  const int64_t found = cache_.Find(tokens, slice.space).length;
  if (found < position) {
    RestartRows(id, position);
  } else {
    cache_.StartSequence(id, tokens, slice.space);
  }
  return true;
}

void HeadDrafter::RestartRows(int64_t id, int64_t position) {
  if (kv_.HasSequence(id)) kv_.RemoveSequence(id);
  kv_.AddSequence(id);
  known_[id].begin = position;
}

// ---- Feeding the head

void HeadDrafter::Propose(std::span<const Wish> wishes) {
  for (const Wish& wish : wishes) {
    if (kv_.HasSequence(wish.sequence_id)) known_[wish.sequence_id].wish = &wish;
  }
  try {
    for (int64_t id = 0; id < std::ssize(known_); ++id) {
      if (known_[id].wish != nullptr || NumReady(id) >= DraftHead::kBulk) AddReady(id);
    }
    RunWork();
  } catch (...) {
    ClearWork();
    for (int64_t id = 0; id < std::ssize(known_); ++id) Drop(id);
    throw;
  }
  for (Known& known : known_) known.wish = nullptr;
}

void HeadDrafter::FeedReady(int64_t id) noexcept {
  try {
    AddReady(id);
    RunWork();
  } catch (...) {
    ClearWork();
    Drop(id);
  }
}

int64_t HeadDrafter::NumReady(int64_t id) const {
  const Known& known = known_[id];
  const int64_t num_states = std::ssize(known.places) - NumInFlight(known);
  if (num_states == 0) return 0;
  const int64_t num_with_token = std::ssize(*known.tokens) - 1 - EndOf(id);
  return std::clamp<int64_t>(num_with_token, 0, num_states);
}

void HeadDrafter::AddReady(int64_t id) {
  int64_t num_rows = NumReady(id);
  for (; num_rows > sizes_.max_rows; num_rows = NumReady(id)) {
    RunWork();
    AddWork(id, sizes_.max_rows);
    RunWork();
  }
  if (num_rows == 0) return;
  const bool has_room =
      work_rows_ + num_rows <= sizes_.max_rows && std::ssize(work_) < sizes_.max_sequences;
  if (!has_room) RunWork();
  AddWork(id, num_rows);
}

void HeadDrafter::AddWork(int64_t id, int64_t num_rows) {
  Known& known = known_[id];
  const int64_t end = EndOf(id);
  const bool is_whole = end + num_rows == std::ssize(*known.tokens) - 1;
  const bool is_asked = is_whole && known.wish != nullptr;
  const int64_t length = is_asked ? std::min(known.wish->max_tokens, head_.info().max_length) : 0;
  const int64_t num_tokens = num_rows + std::max<int64_t>(length - 1, 0);
  const int64_t longest = head_.model().metadata().context_window_size;
  // Old tokens are given up for new ones.
  if (longest > 0 && kv_.length(id) + num_tokens > longest) RestartRows(id, end);
  const bool fits = (longest <= 0 || num_tokens <= longest) &&
                    kv_.PagesNeeded(id, num_tokens) <= kv_.pool().num_available();
  if (!fits) return Drop(id);
  kv_.Reserve(id, num_tokens, &copies_);
  work_.push_back({.next_tokens = std::span(*known.tokens).subspan(end + 1, num_rows),
                   .places = std::span(known.places).first(static_cast<size_t>(num_rows)),
                   .position = kv_.length(id),
                   .length = length});
  work_ids_.push_back(id);
  work_rows_ += num_rows;
}

void HeadDrafter::RunWork() {
  if (work_.empty()) return;
  int64_t longest = 1;
  int64_t num_rows = work_rows_;
  for (size_t i = 0; i < work_.size(); ++i) {
    work_[i].block_table = kv_.block_table(work_ids_[i]);
    longest = std::max(longest, work_[i].length);
    num_rows += std::max<int64_t>(work_[i].length - 1, 0);
  }
  if (!copies_.empty()) head_.model().CopyPages(copies_);
  copies_.clear();
  const std::vector<std::vector<int32_t>> drafts = head_.Propose(work_, *states_);
  Count(longest, num_rows);
  for (size_t i = 0; i < work_.size(); ++i) {
    const int64_t id = work_ids_[i];
    Known& known = known_[id];
    const int64_t num_fed = std::ssize(work_[i].next_tokens);
    kv_.Commit(id, num_fed);
    kv_.PopN(id, 0);  // what was reserved for guesses
    Release(work_[i].places);
    known.places.erase(known.places.begin(), known.places.begin() + num_fed);
    if (drafts[i].empty()) continue;
    known.wish->drafts->insert(known.wish->drafts->end(), drafts[i].begin(), drafts[i].end());
  }
  ClearWork();
}

void HeadDrafter::ClearWork() noexcept {
  work_.clear();
  chain_work_.clear();
  work_ids_.clear();
  work_rows_ = 0;
  copies_.clear();
}

// ---- Ends and beginnings

void HeadDrafter::Fork(int64_t parent_id, int64_t child_id,
                       const std::vector<int32_t>& child_tokens) {
  if (!kv_.HasSequence(parent_id)) return;
  FeedReady(parent_id);
  if (!kv_.HasSequence(parent_id)) return;
  try {
    if (child_id >= std::ssize(known_)) known_.resize(static_cast<size_t>(child_id) + 1);
    Known child = known_[parent_id];
    child.tokens = &child_tokens;
    kv_.ForkSequence(parent_id, child_id, kv_.length(parent_id));
    known_[child_id] = std::move(child);
    Hold(known_[child_id].places);
  } catch (const std::bad_alloc&) {  // then nothing is known of the child
  }
}

void HeadDrafter::Forget(int64_t sequence_id) {
  if (!kv_.HasSequence(sequence_id)) return;
  FeedReady(sequence_id);
  if (!kv_.HasSequence(sequence_id)) return;
  const Known& known = known_[sequence_id];
  if (known.begin == 0) {
    const int64_t length = kv_.length(sequence_id);
    const int64_t kept = std::min<int64_t>(length, std::ssize(*known.tokens));
    kv_.PopN(sequence_id, length - kept);
    cache_.Insert(sequence_id, std::span(*known.tokens).first(static_cast<size_t>(kept)),
                  known.space);
  }
  Drop(sequence_id);
}

void HeadDrafter::Drop(int64_t id) noexcept {
  if (kv_.HasSequence(id)) kv_.RemoveSequence(id);
  Release(known_[id].places);
  known_[id] = {};
}

void HeadDrafter::Audit() const {
  kv_.Audit(cache_.CountHolders());
  cache_.Audit();
  for (const Known& known : known_) {
    MLC_CHECK(NumInFlight(known) <= std::ssize(known.places)) << NumInFlight(known);
  }
  std::vector<int32_t> num_holders(num_holders_.size());
  for (const Known& known : known_) {
    for (const int32_t place : known.places) ++num_holders[static_cast<size_t>(place)];
  }
  MLC_CHECK(num_holders == num_holders_) << "holders of hidden states";
  MLC_CHECK(std::ranges::count(num_holders, 0) == std::ssize(free_places_))
      << free_places_.size() << " free places";
}

}  // namespace mlc_native
