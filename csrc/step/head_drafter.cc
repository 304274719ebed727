#include "step/head_drafter.h"

#include <algorithm>
#include <utility>

#include "support/check.h"

namespace mlc_native {

HeadDrafter::HeadDrafter(std::unique_ptr<Model> head, int64_t target_hidden_size,
                         const Sizes& sizes)
    : head_(std::move(head)),
      sizes_(sizes),
      state_size_(std::ssize(head_.info().target_streams) * target_hidden_size),
      kv_(sizes.num_pages, kKvPageSize),
      cache_(&kv_, {}) {
  MLC_CHECK(sizes.max_rows >= sizes.max_sequences) << sizes.max_rows;
  head_.Allocate(sizes.num_pages, sizes.max_rows, sizes.max_sequences);
}

// ---- Watching the target

// States of a rest would be missing behind what is known now.
void HeadDrafter::Rest(bool rests) {
  rests_ = rests;
  for (int64_t id = 0; rests && id < std::ssize(known_); ++id) Drop(id);
}

HiddenStates HeadDrafter::Watch(std::span<const WatchedSlice> slices) {
  if (rests_) return {};
  for (int64_t id = 0; id < std::ssize(known_); ++id) {
    const int64_t num_rows = NumReady(id) - NumKept(id);
    if (num_rows > 0) Keep(id, num_rows);
  }
  Unwatch();
  are_states_there_ = false;
  rows_.clear();
  for (const WatchedSlice& slice : slices) {
    Align(slice);
    Known& known = known_[slice.sequence_id];
    known.first_fresh = std::ssize(rows_);
    known.num_fresh = slice.num_rows;
    for (int32_t row = 0; row < slice.num_rows; ++row) rows_.push_back(slice.first_row + row);
  }
  const size_t size = rows_.size() * static_cast<size_t>(state_size_);
  if (states_.size() < size) states_.resize(size);
  return {
      .rows = rows_, .streams = head_.info().target_streams, .out = std::span(states_).first(size)};
}

void HeadDrafter::Unwatch() noexcept {
  for (Known& known : known_) known.num_fresh = 0;
}

void HeadDrafter::Keep(int64_t id, int64_t num_rows) {
  Known& known = known_[id];
  const auto begin = states_.begin() + known.first_fresh * state_size_;
  known.kept.insert(known.kept.end(), begin, begin + num_rows * state_size_);
  known.first_fresh += num_rows;
  known.num_fresh -= num_rows;
}

void HeadDrafter::Align(const WatchedSlice& slice) {
  const int64_t id = slice.sequence_id;
  const int64_t position = slice.position;
  if (id >= std::ssize(known_)) known_.resize(static_cast<size_t>(id) + 1);
  Known& known = known_[id];
  if (!kv_.HasSequence(id)) {
    known = {.tokens = slice.tokens, .space = slice.space};
    const auto tokens = std::span(*slice.tokens).first(static_cast<size_t>(position));
    const int64_t found = cache_.Find(tokens, slice.space).length;
    if (found < position) return Restart(id, position);
    return cache_.StartSequence(id, tokens, slice.space);
  }
  const int64_t surplus = EndOf(id) + NumKept(id) - position;
  if (surplus < 0 || position < known.begin) return Restart(id, position);
  const int64_t num_dropped = std::min(surplus, NumKept(id));
  known.kept.resize(known.kept.size() - static_cast<size_t>(num_dropped * state_size_));
  kv_.PopN(id, surplus - num_dropped);
}

void HeadDrafter::Restart(int64_t id, int64_t position) {
  if (kv_.HasSequence(id)) kv_.RemoveSequence(id);
  kv_.AddSequence(id);
  known_[id].begin = position;
  known_[id].kept.clear();
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
  const int64_t num_states = NumKept(id) + (are_states_there_ ? known.num_fresh : 0);
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
  if (longest > 0 && kv_.length(id) + num_tokens > longest) {
    std::vector<float> kept = std::move(known.kept);
    Restart(id, end);
    known.kept = std::move(kept);
  }
  const bool fits = (longest <= 0 || num_tokens <= longest) &&
                    kv_.PagesNeeded(id, num_tokens) <= kv_.pool().num_available();
  if (!fits) return Drop(id);
  kv_.Reserve(id, num_tokens, &copies_);
  const auto num_floats = static_cast<size_t>(num_rows * state_size_);
  auto states = std::span(states_).subspan(static_cast<size_t>(known.first_fresh * state_size_));
  if (!known.kept.empty()) {
    if (num_rows > NumKept(id)) Keep(id, num_rows - NumKept(id));
    states = known.kept;
  }
  work_.push_back({.next_tokens = std::span(*known.tokens).subspan(end + 1, num_rows),
                   .states = states.first(num_floats),
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
  const std::vector<std::vector<int32_t>> drafts = head_.Propose(work_);
  Count(longest, num_rows);
  for (size_t i = 0; i < work_.size(); ++i) {
    const int64_t id = work_ids_[i];
    Known& known = known_[id];
    const int64_t num_fed = std::ssize(work_[i].next_tokens);
    kv_.Commit(id, num_fed);
    kv_.PopN(id, 0);  // what was reserved for guesses
    if (known.kept.empty()) {
      known.first_fresh += num_fed;
      known.num_fresh -= num_fed;
    } else {
      known.kept.erase(known.kept.begin(), known.kept.begin() + num_fed * state_size_);
    }
    if (drafts[i].empty()) continue;
    known.wish->drafts->insert(known.wish->drafts->end(), drafts[i].begin(), drafts[i].end());
  }
  ClearWork();
}

void HeadDrafter::ClearWork() noexcept {
  work_.clear();
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
  if (child_id >= std::ssize(known_)) known_.resize(static_cast<size_t>(child_id) + 1);
  kv_.ForkSequence(parent_id, child_id, kv_.length(parent_id));
  known_[child_id] = known_[parent_id];
  known_[child_id].tokens = &child_tokens;
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
  known_[id] = {};
}

void HeadDrafter::Audit() const {
  kv_.Audit(cache_.CountHolders());
  cache_.Audit();
}

}  // namespace mlc_native
