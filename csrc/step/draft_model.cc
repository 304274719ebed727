#include "step/draft_model.h"

#include <algorithm>
#include <utility>

#include "support/check.h"

namespace mlc_native {
namespace {

// Rows of tokens that the step in flight draws.
int64_t NumDrawn(const BatchDrafter::Wish& wish) {
  return wish.behind ? wish.behind.num_guesses + 1 : 0;
}

}  // namespace

DraftModel::DraftModel(std::unique_ptr<Model> model, const Sizes& sizes, const Log& log)
    : model_(std::move(model)),
      sizes_(sizes),
      queue_(model_->step_queue() != nullptr ? model_->step_queue()
                                             : &host_steps_.emplace(model_.get())),
      kv_(sizes.num_pages, kKvPageSize, log),
      cache_(&kv_, {}) {
  MLC_CHECK(sizes.max_rows >= sizes.max_sequences) << sizes.max_rows;
  model_->Allocate(sizes.num_pages, sizes.max_rows, sizes.max_sequences);
  greedy_.temperature = 0;
}

void DraftModel::PrepareAll(std::span<const Wish> wishes) {
  active_.clear();
  copies_.clear();
  int64_t rows_left = sizes_.max_rows;
  for (const Wish& wish : wishes) {
    const int64_t num_drawn = NumDrawn(wish);
    if (rows_left <= num_drawn || std::ssize(active_) == sizes_.max_sequences) break;
    Active active;
    if (!Prepare(wish, rows_left - num_drawn, &active)) continue;
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
  // What was fed behind a guess that failed.
  for (const Wish& wish : wishes) {
    const int64_t id = wish.sequence_id;
    if (kv_.HasSequence(id)) kv_.PopN(id, kv_.length(id) - std::ssize(known_[id].tokens));
  }
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

bool DraftModel::Prepare(const Wish& wish, int64_t max_rows, Active* active) {
  const int64_t vocab_size = model_->metadata().vocab_size;
  const int64_t longest = model_->metadata().context_window_size;
  const int64_t length = std::ssize(wish.tokens);
  // The last guess is not fed.
  const int64_t end = length + NumDrawn(wish) + wish.max_tokens - 1;
  if (longest > 0 && end > longest) return false;
  if (!kv_.HasSequence(wish.sequence_id)) StartSequence(wish);
  RollBack(wish.sequence_id, wish.tokens.first(length - 1));
  const int64_t from = kv_.length(wish.sequence_id);
  const std::span<const int32_t> fed = wish.tokens.subspan(from, std::min(length - from, max_rows));
  // A target may have more rows in its embeddings than its tokenizer has tokens.
  if (std::ranges::any_of(fed, [&](int32_t token) { return token >= vocab_size; })) return false;
  const int64_t reserved = from + std::ssize(fed) == length ? end - from : std::ssize(fed);
  if (kv_.PagesNeeded(wish.sequence_id, reserved) > kv_.pool().num_available()) return false;
  kv_.Reserve(wish.sequence_id, reserved, &copies_);
  *active = {.wish = &wish, .num_fed = std::ssize(fed)};
  return true;
}

void DraftModel::StartSequence(const Wish& wish) {
  MLC_CHECK(wish.sequence_id >= 0) << wish.sequence_id;
  if (wish.sequence_id >= std::ssize(known_)) known_.resize(wish.sequence_id + 1);
  const auto known =
      wish.tokens.first(cache_.Find(wish.tokens.first(wish.tokens.size() - 1), wish.space).length);
  Known& entry = known_[wish.sequence_id];
  entry.tokens.assign(known.begin(), known.end());
  entry.space = wish.space;
  cache_.StartSequence(wish.sequence_id, known, wish.space);
}

void DraftModel::RollBack(int64_t sequence_id, std::span<const int32_t> tokens) {
  std::vector<int32_t>& known = known_[sequence_id].tokens;
  const int64_t same = std::ranges::mismatch(known, tokens).in1 - known.begin();
  kv_.PopN(sequence_id, std::ssize(known) - same);
  known.resize(same);
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
    const bool goes_on = ++active.num_drawn < wish.max_tokens;
    guesses.push_back({.wish = &wish, .is_fed = goes_on});
    active.num_fed = 1;
    return !goes_on;
  });
}

void DraftModel::AddSlice(Active* active) {
  const Wish& wish = *active->wish;
  std::vector<int32_t>& known = known_[wish.sequence_id].tokens;
  const int64_t position = kv_.length(wish.sequence_id);
  const auto first_row = static_cast<int32_t>(token_ids_.size());
  if (active->drawn_row >= 0) {  // Collect adds the guess to `known`
    token_ids_.push_back(host_steps_ ? known.back() : PendingToken(active->drawn_row));
  } else {
    const auto fed = wish.tokens.subspan(position, active->num_fed);
    known.insert(known.end(), fed.begin(), fed.end());
    token_ids_.insert(token_ids_.end(), fed.begin(), fed.end());
  }
  const int64_t end = position + active->num_fed;
  // More may be reserved, for the guesses to come.
  const int64_t num_pages = (end + kKvPageSize - 1) / kKvPageSize;
  slices_.push_back({.first_row = first_row,
                     .num_tokens = static_cast<int32_t>(active->num_fed),
                     .position = position,
                     .block_table = kv_.block_table(wish.sequence_id).first(num_pages)});
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
  kv_.PopN(sequence_id, 0);
  cache_.Insert(sequence_id, known.tokens, known.space);
  Drop(sequence_id);
}

void DraftModel::Drop(int64_t sequence_id) noexcept {
  if (!kv_.HasSequence(sequence_id)) return;
  kv_.RemoveSequence(sequence_id);
  known_[sequence_id].tokens.clear();
}

void DraftModel::Audit() const {
  kv_.Audit(cache_.CountHolders());
  cache_.Audit();
  for (size_t id = 0; id < known_.size(); ++id) {
    if (!kv_.HasSequence(static_cast<int64_t>(id))) continue;
    MLC_CHECK(kv_.length(static_cast<int64_t>(id)) == std::ssize(known_[id].tokens)) << id;
  }
}

}  // namespace mlc_native
