#include "step/draft_model.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "support/check.h"

namespace mlc_native {
namespace {

// Rows of tokens that the step in flight draws.
int64_t NumDrawn(const BatchDrafter::Wish& wish) {
  return wish.behind ? wish.behind.num_guesses + 1 : 0;
}

// Those of a forward of so many tokens; the others are of the forwards behind it.
std::span<const RecurrentWrite> WritesWithin(std::span<const RecurrentWrite> writes,
                                             int64_t num_tokens) {
  const auto end = std::ranges::upper_bound(writes, num_tokens, {}, &RecurrentWrite::num_tokens);
  return {writes.begin(), end};
}

}  // namespace

DraftModel::DraftModel(std::unique_ptr<Model> model, const Sizes& sizes, const Log& log)
    : model_(std::move(model)),
      sizes_(sizes),
      queue_(model_->step_queue() != nullptr ? model_->step_queue()
                                             : &host_steps_.emplace(model_.get())),
      kv_(sizes.num_pages, kKvPageSize, log, sizes.num_slots),
      cache_(&kv_, {}) {
  MLC_CHECK(sizes.max_rows >= sizes.max_sequences) << sizes.max_rows;
  MLC_CHECK((sizes.num_slots > 0) == (model_->metadata().recurrent_bytes_per_slot > 0))
      << sizes.num_slots;
  if (sizes.num_slots > 0) model_->AllocateRecurrent(sizes.num_slots);
  model_->Allocate(sizes.num_pages, sizes.max_rows, sizes.max_sequences);
  greedy_.temperature = 0;
}

void DraftModel::PrepareAll(std::span<const Wish> wishes) {
  active_.clear();
  copies_.clear();
  if (kv_.has_states()) ReleaseStates(wishes);
  int64_t rows_left = sizes_.max_rows;
  int64_t num_wishes_left = std::ssize(wishes);
  for (const Wish& wish : wishes) {
    const int64_t num_drawn = NumDrawn(wish);
    if (rows_left <= num_drawn || std::ssize(active_) == sizes_.max_sequences) break;
    Active active;
    if (!Prepare(wish, rows_left - num_drawn, num_wishes_left--, &active)) continue;
    active_.push_back(active);
    rows_left -= active.num_fed + num_drawn;
  }
}

void DraftModel::Propose(std::span<const Wish> wishes) {
  try {
    PrepareAll(wishes);
    Run();
  } catch (...) {
    Discard();
    for (const Wish& wish : wishes) Drop(wish.sequence_id);
    throw;
  }
  for (const Wish& wish : wishes) EndCall(wish);
}

void DraftModel::EndCall(const Wish& wish) {
  const int64_t id = wish.sequence_id;
  if (!kv_.HasSequence(id)) return;
  const Known& known = known_[id];
  kv_.PopN(id, kv_.length(id) - std::ssize(known.tokens));  // fed behind a guess that failed
  if (kv_.kept_states(id).empty()) return;
  cache_.Insert(id, std::span(known.tokens).first(known.num_given), known.space);
}

void DraftModel::Run() {
  const int64_t most_in_flight = host_steps_ ? 1 : StepQueue::kMaxInFlight;
  while (!active_.empty() || num_submitted_ > num_collected_) {
    if (!active_.empty() && num_submitted_ - num_collected_ < most_in_flight) {
      Submit();
    } else {
      Collect();
    }
  }
}

bool DraftModel::Prepare(const Wish& wish, int64_t max_rows, int64_t num_wishes_left,
                         Active* active) {
  const int64_t vocab_size = model_->metadata().vocab_size;
  const int64_t longest = model_->metadata().context_window_size;
  const int64_t length = std::ssize(wish.tokens);
  // The last guess is not fed.
  const int64_t end = length + NumDrawn(wish) + wish.max_tokens - 1;
  if (longest > 0 && end > longest) return false;
  if (!kv_.HasSequence(wish.sequence_id)) StartSequence(wish);
  RollBack(wish);
  const int64_t most = std::min(wish.max_tokens, ShareOfSlots(num_wishes_left));
  if (most <= 0) return false;
  const int64_t from = kv_.length(wish.sequence_id);
  const std::span<const int32_t> fed = wish.tokens.subspan(from, std::min(length - from, max_rows));
  // A target may have more rows in its embeddings than its tokenizer has tokens.
  if (std::ranges::any_of(fed, [&](int32_t token) { return token >= vocab_size; })) return false;
  const bool guesses = from + std::ssize(fed) == length;
  const int64_t reserved = std::ssize(fed) + (guesses ? NumDrawn(wish) + most - 1 : 0);
  if (kv_.PagesNeeded(wish.sequence_id, reserved) > kv_.pool().num_available()) return false;
  kv_.Reserve(wish.sequence_id, reserved, &copies_);
  *active = {.wish = &wish, .num_fed = std::ssize(fed), .num_wanted = guesses ? most : 0};
  if (kv_.has_states()) ReserveStates(*active);
  return true;
}

int64_t DraftModel::ShareOfSlots(int64_t num_wishes) const {
  if (!kv_.has_states()) return std::numeric_limits<int64_t>::max();
  return kv_.slots().num_available() / num_wishes;
}

void DraftModel::ReserveStates(const Active& active) {
  const int64_t id = active.wish->sequence_id;
  const int64_t divergence = known_[id].divergence - kv_.length(id);
  const int64_t num_places = std::max<int64_t>(active.num_wanted, 1);
  state_places_.clear();
  if (divergence > 0 && divergence < active.num_fed && kv_.slots().num_available() > num_places) {
    state_places_.push_back({.num_tokens = divergence, .is_kept = true});
  }
  for (int64_t i = 0; i < num_places; ++i) {
    state_places_.push_back({.num_tokens = active.num_fed + i});
  }
  kv_.ReserveStates(id, state_places_);
}

void DraftModel::StartSequence(const Wish& wish) {
  MLC_CHECK(wish.sequence_id >= 0) << wish.sequence_id;
  if (wish.sequence_id >= std::ssize(known_)) known_.resize(wish.sequence_id + 1);
  const auto known =
      wish.tokens.first(cache_.Find(wish.tokens.first(wish.tokens.size() - 1), wish.space).length);
  Known& entry = known_[wish.sequence_id];
  entry.tokens.assign(known.begin(), known.end());
  entry.space = wish.space;
  entry.num_given = std::ssize(known);
  if (kv_.has_states()) {
    entry.divergence = cache_.NumMatched(wish.tokens.first(wish.tokens.size() - 1), wish.space);
  }
  cache_.StartSequence(wish.sequence_id, known, wish.space);
}

void DraftModel::RollBack(const Wish& wish) {
  const int64_t id = wish.sequence_id;
  const std::vector<int32_t>& known = known_[id].tokens;
  const std::span<const int32_t> tokens = wish.tokens.first(wish.tokens.size() - 1);
  const int64_t same = std::ranges::mismatch(known, tokens).in1 - known.begin();
  const int64_t length = kv_.LengthToGoOnFrom(id, same);
  if (length == 0 && same > 0) {  // the cache may have a state
    Drop(id);
    return StartSequence(wish);
  }
  TakeBack(id, length);
  known_[id].num_given = length;  // guesses that were right, too
}

void DraftModel::TakeBack(int64_t sequence_id, int64_t length) {
  Known& known = known_[sequence_id];
  length = std::min(length, std::ssize(known.tokens));
  kv_.PopN(sequence_id, std::ssize(known.tokens) - length);
  known.tokens.resize(static_cast<size_t>(length));
  known.num_given = std::min(known.num_given, length);
}

void DraftModel::ReleaseStates(std::span<const Wish> wishes) {
  for (Known& known : known_) known.is_wished = false;
  for (const Wish& wish : wishes) {
    if (!kv_.HasSequence(wish.sequence_id)) continue;
    RollBack(wish);
    known_[wish.sequence_id].is_wished = true;
  }
  for (int64_t id = 0; id < std::ssize(known_); ++id) {
    if (!kv_.HasSequence(id)) continue;
    if (!known_[id].is_wished) TakeBack(id, known_[id].num_given);
    kv_.ReserveStates(id, {});
  }
}

void DraftModel::ProposeAhead(std::span<const Wish> wishes, TokenMemory* tokens) {
  try {
    PrepareAll(wishes);
    RunAhead(tokens);
  } catch (...) {
    for (const Wish& wish : wishes) Drop(wish.sequence_id);
    throw;
  }
}

void DraftModel::RunAhead(TokenMemory* tokens) {
  if (active_.empty()) return;
  chain_work_.clear();
  int64_t longest = 1;
  int64_t num_rows = 0;
  for (const Active& active : active_) {
    const Wish& wish = *active.wish;
    const int64_t position = kv_.length(wish.sequence_id);
    DraftChain::Work work{.known = wish.tokens.subspan(position, active.num_fed),
                          .position = position,
                          .block_table = kv_.block_table(wish.sequence_id)};
    if (position + active.num_fed == std::ssize(wish.tokens)) {
      work.behind = wish.behind;
      work.length = wish.max_tokens;
      work.first_guess = wish.first_guess;
    }
    longest = std::max(longest, work.length);
    num_rows += work.num_rows();
    chain_work_.push_back(work);
  }
  if (!copies_.empty()) model_->CopyPages(copies_);
  copies_.clear();
  chain_.Run(*queue_, chain_work_, nullptr, tokens);
  Count(longest, num_rows);
  for (const DraftChain::Work& work : chain_work_) {
    const Wish& wish = *active_[&work - chain_work_.data()].wish;
    std::vector<int32_t>& known = known_[wish.sequence_id].tokens;
    known.insert(known.end(), work.known.begin(), work.known.end());
    kv_.Commit(wish.sequence_id, std::ssize(work.known));
    kv_.PopN(wish.sequence_id, 0);  // the rows of what is not known
    for (int32_t guess = 0; guess < work.length; ++guess) {
      wish.drafts->push_back(TokenAt(work.first_guess + guess));
    }
  }
}

void DraftModel::Submit() {
  std::vector<Guess>& guesses = guesses_[num_submitted_ % guesses_.size()];
  token_ids_.clear();
  slices_.clear();
  logits_rows_.clear();
  for (Active& active : active_) AddSlice(&active);
  if (!copies_.empty()) model_->CopyPages(copies_);
  copies_.clear();
  queue_->Forward({.token_ids = token_ids_, .sequences = slices_, .logits_rows = logits_rows_});
  TokenRow row;
  row.config = &greedy_;
  token_rows_.assign(logits_rows_.size(), row);
  queue_->Sample(token_rows_);
  ++num_submitted_;
  Count(1, std::ssize(token_ids_));

  guesses.clear();
  std::erase_if(active_, [&](Active& active) {
    const Wish& wish = *active.wish;
    kv_.Commit(wish.sequence_id, active.num_fed);
    if (active.drawn_row < 0) return true;  // goes on in the next call
    const bool goes_on = ++active.num_drawn < active.num_wanted;
    guesses.push_back({.wish = &wish, .is_fed = goes_on});
    active.num_fed = 1;
    return !goes_on;
  });
}

void DraftModel::AddSlice(Active* active) {
  const Wish& wish = *active->wish;
  Known& sequence = known_[wish.sequence_id];
  std::vector<int32_t>& known = sequence.tokens;
  const int64_t position = kv_.length(wish.sequence_id);
  const auto first_row = static_cast<int32_t>(token_ids_.size());
  if (active->drawn_row >= 0) {  // Collect adds the guess to `known`
    token_ids_.push_back(host_steps_ ? known.back() : PendingToken(active->drawn_row));
  } else {
    const auto fed = wish.tokens.subspan(position, active->num_fed);
    known.insert(known.end(), fed.begin(), fed.end());
    token_ids_.insert(token_ids_.end(), fed.begin(), fed.end());
    sequence.num_given = std::ssize(known);
  }
  const int64_t end = position + active->num_fed;
  // More may be reserved, for the guesses to come.
  const int64_t num_pages = (end + kKvPageSize - 1) / kKvPageSize;
  slices_.push_back(
      {.first_row = first_row,
       .num_tokens = static_cast<int32_t>(active->num_fed),
       .position = position,
       .block_table = kv_.block_table(wish.sequence_id).first(num_pages),
       .recurrent_slot = kv_.state_slot(wish.sequence_id),
       .recurrent_writes = WritesWithin(kv_.state_writes(wish.sequence_id), active->num_fed)});
  if (end < std::ssize(wish.tokens)) return;
  active->drawn_row = static_cast<int32_t>(logits_rows_.size());
  logits_rows_.push_back(static_cast<int32_t>(token_ids_.size()) - 1);
}

void DraftModel::Collect() {
  queue_->Collect(&drawn_);
  const std::vector<Guess>& guesses = guesses_[num_collected_++ % guesses_.size()];
  for (size_t row = 0; row < guesses.size(); ++row) {
    const auto& [wish, is_fed] = guesses[row];
    if (wish == nullptr) continue;
    if (!drawn_[row].error.empty()) {
      EndGuesses(wish);
      continue;
    }
    const int32_t token = drawn_[row].result.token.token_id;
    wish->drafts->push_back(token);
    if (is_fed) known_[wish->sequence_id].tokens.push_back(token);
  }
}

void DraftModel::EndGuesses(const Wish* wish) {
  std::erase_if(active_, [wish](const Active& active) { return active.wish == wish; });
  for (std::vector<Guess>& guesses : guesses_) {
    for (Guess& guess : guesses) {
      if (guess.wish == wish) guess.wish = nullptr;
    }
  }
}

void DraftModel::Discard() noexcept {
  try {
    for (; num_collected_ < num_submitted_; ++num_collected_) queue_->Collect(&drawn_);
  } catch (...) {  // then all are lost
    num_collected_ = num_submitted_;
  }
}

void DraftModel::Forget(int64_t sequence_id) {
  if (!kv_.HasSequence(sequence_id)) return;
  const Known& known = known_[sequence_id];
  if (kv_.has_states()) {
    TakeBack(sequence_id, known.num_given);
    kv_.KeepState(sequence_id);
  }
  kv_.PopN(sequence_id, 0);
  cache_.Insert(sequence_id, known.tokens, known.space);
  Drop(sequence_id);
}

void DraftModel::Drop(int64_t sequence_id) noexcept {
  if (!kv_.HasSequence(sequence_id)) return;
  kv_.RemoveSequence(sequence_id);
  known_[sequence_id].tokens.clear();
  known_[sequence_id].num_given = 0;
}

void DraftModel::Audit() const {
  kv_.Audit(cache_.CountHolders(), cache_.CountHoldersOfSlots());
  cache_.Audit();
  for (size_t id = 0; id < known_.size(); ++id) {
    if (!kv_.HasSequence(static_cast<int64_t>(id))) continue;
    const auto [sequence, num_given] = std::pair(static_cast<int64_t>(id), known_[id].num_given);
    MLC_CHECK(kv_.length(sequence) == std::ssize(known_[id].tokens)) << id;
    MLC_CHECK(num_given <= kv_.length(sequence)) << id;
    MLC_CHECK(kv_.LengthToGoOnFrom(sequence, num_given) == num_given) << "state of " << id;
  }
}

}  // namespace mlc_native
