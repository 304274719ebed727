// Speculation, continued: when the batch drafter is asked, and how.
#include <algorithm>
#include <chrono>
#include <exception>

#include "engine_state.h"
#include "step/speculation.h"
#include "step/token_blocks.h"

namespace mlc_native {

void Speculation::Rest(bool pays) {
  const bool rested = rest_.rests();
  rest_.AfterStep(pays, model_rate_.rate());
  if (rest_.rests() != rested) context_.batch_drafter->Rest(!rested);
}

bool Speculation::AskBatchDrafterIfItPays(const Leftover& left) {
  const TimePoint start = context_.now();
  if (last_time_ != TimePoint()) {
    probe_budget_.Earn(std::chrono::duration<double>(start - last_time_).count());
  }
  last_time_ = start;
  if (!wishes_.empty() && (is_length_fixed_ || (!rest_.rests() && BatchDrafterPays(left)))) {
    if (guesses_ahead_) {
      AskAhead();
    } else {
      AskBatchDrafter();
    }
    return true;
  }
  wishes_.clear();
  if (rest_.rests() || guesses_ahead_) return false;
  const bool probes = probe_ && rest_.is_ready() && probe_budget_.MayProbe(SecondsToRead(*probe_));
  if (probes) wishes_.push_back(*probe_);
  // A draft head reads what the model has computed even if it is asked for nothing.
  AskBatchDrafter();
  if (!probes) return false;
  const double verifying = context_.state.decode_costs.SecondsPerRow();
  probe_budget_.Spend(verifying + std::chrono::duration<double>(context_.now() - start).count());
  return false;
}

// A forward for few sequences may take as long as one for all of them.
bool Speculation::BatchDrafterPays(const Leftover& left) const {
  const int64_t num_asked = std::ssize(wishes_);
  const DecodeCosts& costs = context_.state.decode_costs;
  const double tokens_without = static_cast<double>(left.num_decoding);
  const double num_masked = static_cast<double>(left.num_masked) / tokens_without;  // of a row
  const double per_row =
      costs.SecondsPerRow() + proposal_costs_.SecondsPerRow() + costs.SecondsPerMask() * num_masked;
  const double seconds = SecondsToGuess(num_asked) + per_row * static_cast<double>(num_asked);
  return expected_yield_ * SecondsWithout(left) >= seconds * tokens_without;
}

void Speculation::AskBatchDrafter() {
  BatchDrafter& drafter = *context_.batch_drafter;
  const TimePoint start = context_.now();
  const int64_t num_forwards = drafter.num_forwards();
  const int64_t num_rows = drafter.num_rows();
  const bool reads = std::ranges::any_of(wishes_, [&](const BatchDrafter::Wish& wish) {
    return drafter.NumUnread(wish) > kMaxDraftLength + 1;
  });
  try {
    drafter.Propose(wishes_);
  } catch (const std::exception&) {
    ++context_.state.metrics.spec_decode.num_failures;
    for (const BatchDrafter::Wish& wish : wishes_) wish.drafts->clear();
  }
  const int64_t forwards = drafter.num_forwards() - num_forwards;
  if (forwards == 0) return;
  const double seconds = std::chrono::duration<double>(context_.now() - start).count();
  draft_seconds_ += seconds;
  const int64_t rows = (drafter.num_rows() - num_rows) / forwards;
  draft_costs_.Observe(rows, seconds / static_cast<double>(forwards));
  if (!reads) guess_costs_.Observe(rows, seconds / static_cast<double>(forwards));
}

// Guesses in places that the device fills.
void Speculation::AskAhead() {
  TokenBlocks& blocks = *context_.token_blocks;
  for (size_t i = 0; i < wishes_.size(); ++i) {
    wishes_[i].first_guess = blocks.FirstGuess(static_cast<int64_t>(i));
  }
  try {
    blocks.BeginChain();
    context_.batch_drafter->ProposeAhead(wishes_, &blocks.memory());
  } catch (const std::exception&) {
    ++context_.state.metrics.spec_decode.num_failures;
    for (const BatchDrafter::Wish& wish : wishes_) wish.drafts->clear();
  }
}

// A draft model reads a sequence before it guesses. How long the answer will be is not known: it
// is taken to go on for as long as it is already, and until then the guesses must have saved the
// time.
bool Speculation::ReadingPays(const RequestStateEntry& entry, const BatchDrafter::Wish& wish,
                              const Leftover& left) const {
  const int64_t num_unread = context_.batch_drafter->NumUnread(wish) - wish.max_tokens;
  if (num_unread <= kMaxDraftLength) return true;  // it goes on
  const double per_token = SecondsWithout(left) / static_cast<double>(left.num_decoding);
  const double speedup = entry.drafts->model_acceptance().Speedup(left.model_cost, wish.max_tokens);
  const double saved = per_token * (1 - 1 / speedup);
  return static_cast<double>(entry.num_generated()) * saved >= SecondsToRead(wish);
}

double Speculation::SecondsToRead(const BatchDrafter::Wish& wish) const {
  const int64_t num_unread = context_.batch_drafter->NumUnread(wish) - wish.max_tokens;
  return static_cast<double>(std::max<int64_t>(num_unread, 0)) * draft_costs_.SecondsPerRow();
}

}  // namespace mlc_native
