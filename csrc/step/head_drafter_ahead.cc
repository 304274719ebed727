// HeadDrafter, continued: behind a step in flight.
#include <algorithm>

#include "step/head_drafter.h"

namespace mlc_native {

void HeadDrafter::ProposeAhead(std::span<const Wish> wishes, TokenMemory* tokens) {
  for (const Wish& wish : wishes) {
    if (kv_.HasSequence(wish.sequence_id)) known_[wish.sequence_id].wish = &wish;
  }
  try {
    for (int64_t id = 0; id < std::ssize(known_); ++id) {
      if (known_[id].wish != nullptr || NumReady(id) >= DraftHead::kBulk) AddAhead(id);
    }
    RunAhead(tokens);
  } catch (...) {
    ClearWork();
    for (int64_t id = 0; id < std::ssize(known_); ++id) Drop(id);
    throw;
  }
  for (Known& known : known_) known.wish = nullptr;
}

void HeadDrafter::AddAhead(int64_t id) {
  const Known& known = known_[id];
  const Wish* const wish = known.wish;
  const int64_t num_ready = NumReady(id);
  const int64_t end = EndOf(id);
  const TokenBlock behind = wish != nullptr ? wish->behind : TokenBlock();
  const int64_t num_drawn = behind ? behind.num_guesses + 1 : 0;
  // It has seen all tokens that are known, and the step in flight, if there is one.
  const bool is_whole = end + num_ready == std::ssize(*known.tokens) - 1 &&
                        NumInFlight(known) == num_drawn &&
                        (!behind || std::ssize(known.places) == num_ready + num_drawn);
  DraftChain::Work work{
      .known = std::span(*known.tokens).subspan(static_cast<size_t>(end + 1)).first(num_ready),
      .position = kv_.length(id)};
  if (wish != nullptr && is_whole) {
    work.behind = behind;
    work.length = std::min(wish->max_tokens, head_.info().max_length);
    work.first_guess = wish->first_guess;
  }
  const int64_t num_rows = work.num_rows();
  work.places = std::span(known.places).first(static_cast<size_t>(num_rows));
  const int64_t num_tokens = num_rows + std::max<int64_t>(work.length - 1, 0);
  const int64_t longest = head_.model().metadata().context_window_size;
  const bool fits = work_rows_ + num_rows <= sizes_.max_rows &&
                    std::ssize(chain_work_) < sizes_.max_sequences &&
                    (longest <= 0 || kv_.length(id) + num_tokens <= longest) &&
                    kv_.PagesNeeded(id, num_tokens) <= kv_.pool().num_available();
  if (num_rows == 0 || !fits) return;
  kv_.Reserve(id, num_tokens, &copies_);
  chain_work_.push_back(work);
  work_ids_.push_back(id);
  work_rows_ += num_rows;
}

void HeadDrafter::RunAhead(TokenMemory* tokens) {
  if (chain_work_.empty()) return;
  int64_t longest = 1;
  for (size_t i = 0; i < chain_work_.size(); ++i) {
    chain_work_[i].block_table = kv_.block_table(work_ids_[i]);
    longest = std::max(longest, chain_work_[i].length);
  }
  if (!copies_.empty()) head_.model().CopyPages(copies_);
  copies_.clear();
  chain_.Run(*queue(), chain_work_, states_.get(), tokens);
  Count(longest, work_rows_);
  for (size_t i = 0; i < chain_work_.size(); ++i) {
    const DraftChain::Work& work = chain_work_[i];
    const int64_t id = work_ids_[i];
    Known& known = known_[id];
    const int64_t num_known = std::ssize(work.known);
    kv_.Commit(id, num_known);
    kv_.PopN(id, 0);  // the rows of what is not known
    // Later steps of the target, which write to these places, run behind the chain.
    Release(work.places.first(static_cast<size_t>(num_known)));
    known.places.erase(known.places.begin(), known.places.begin() + num_known);
    for (int32_t guess = 0; guess < work.length; ++guess) {
      known.wish->drafts->push_back(TokenAt(work.first_guess + guess));
    }
  }
  ClearWork();
}

// The states of the forward in flight stay behind those that are kept.
void HeadDrafter::Keep(int64_t sequence_id, int64_t position) {
  if (!kv_.HasSequence(sequence_id)) return;
  Known& known = known_[sequence_id];
  const int64_t num_in_flight = NumInFlight(known);
  const int64_t num_collected = std::ssize(known.places) - num_in_flight;
  const int64_t num_kept = std::clamp<int64_t>(position - EndOf(sequence_id), 0, num_collected);
  const auto begin = known.places.begin() + num_kept;
  const auto end = known.places.begin() + num_collected;
  Release({begin, end});
  known.places.erase(begin, end);
}

}  // namespace mlc_native
