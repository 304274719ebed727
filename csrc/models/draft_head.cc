#include "models/draft_head.h"

#include <algorithm>
#include <utility>

#include "mlc_native/detail/page.h"
#include "support/check.h"

namespace mlc_native {
namespace {

int32_t MostLikely(std::span<const float> logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

SequenceSlice MakeSlice(int32_t first_row, int32_t num_tokens, int64_t position,
                        std::span<const int32_t> block_table) {
  const int64_t num_pages = (position + num_tokens + kKvPageSize - 1) / kKvPageSize;
  return {first_row, num_tokens, position, block_table.first(static_cast<size_t>(num_pages))};
}

}  // namespace

DraftHead::DraftHead(std::unique_ptr<Model> model)
    : model_(std::move(model)), queue_(model_->step_queue()) {
  MLC_CHECK(model_->metadata().draft_head.has_value()) << "the model is no draft head";
  greedy_.temperature = 0;
}

void DraftHead::Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_sequences) {
  model_->Allocate(num_pages, max_num_rows, max_num_sequences);
}

void DraftHead::Feed(std::span<const DraftWork> work, const StateMemory& states) {
  Round& round = RoundOf(0);
  tokens_.clear();
  places_.clear();
  slices_.clear();
  rows_.clear();
  round.active.clear();
  for (size_t i = 0; i < work.size(); ++i) {
    const DraftWork& w = work[i];
    const auto first_row = static_cast<int32_t>(tokens_.size());
    tokens_.insert(tokens_.end(), w.next_tokens.begin(), w.next_tokens.end());
    places_.insert(places_.end(), w.places.begin(), w.places.end());
    const auto end = static_cast<int32_t>(tokens_.size());
    slices_.push_back(MakeSlice(first_row, end - first_row, w.position, w.block_table));
    if (w.length == 0) continue;
    rows_.push_back(end - 1);
    round.active.push_back(i);
  }
  Submit(0, {.target = &states, .places = places_, .own_rows = {}, .num_guessed = 0});
}

void DraftHead::Continue(std::span<const DraftWork> work, int64_t step, const Drafts& drafts) {
  const Round& before = RoundOf(step - 1);
  Round& round = RoundOf(step);
  tokens_.clear();
  slices_.clear();
  rows_.clear();
  own_rows_.clear();
  round.active.clear();
  for (size_t i = 0; i < before.active.size(); ++i) {
    const DraftWork& w = work[before.active[i]];
    if (w.length <= step) continue;
    const auto row = static_cast<int32_t>(slices_.size());
    const auto row_before = static_cast<int32_t>(i);
    const int64_t position = w.position + std::ssize(w.next_tokens) - 1 + step;
    slices_.push_back(MakeSlice(row, 1, position, w.block_table));
    rows_.push_back(row);
    own_rows_.push_back(row_before);
    tokens_.push_back(queue_ != nullptr ? PendingToken(row_before)
                                        : drafts[before.active[i]].back());
    round.active.push_back(before.active[i]);
  }
  Submit(step, {.places = {}, .own_rows = own_rows_, .num_guessed = step});
}

void DraftHead::Submit(int64_t step, const DraftInput& input) {
  const ForwardBatch batch{.token_ids = tokens_,
                           .sequences = slices_,
                           .logits_rows = rows_,
                           .hidden = {},
                           .draft = input};
  if (queue_ == nullptr) {
    std::vector<int32_t>& likely = RoundOf(step).likely;
    likely.clear();
    const LogitsView logits = model_->Forward(batch);
    for (int64_t i = 0; i < logits.num_rows; ++i) likely.push_back(MostLikely(logits.row(i)));
    return;
  }
  queue_->Forward(batch);
  TokenRow row;
  row.config = &greedy_;
  token_rows_.assign(rows_.size(), row);
  queue_->Sample(token_rows_);
}

void DraftHead::Collect(int64_t step, Drafts* drafts) {
  const Round& round = RoundOf(step);
  if (queue_ != nullptr) queue_->Collect(&drawn_);
  const std::vector<int32_t>& target_ids = info().target_ids;
  for (size_t i = 0; i < round.active.size(); ++i) {
    // Where nothing can be drawn, any token may be guessed.
    const int32_t id = queue_ == nullptr         ? round.likely[i]
                       : drawn_[i].error.empty() ? drawn_[i].result.token.token_id
                                                 : 0;
    (*drafts)[round.active[i]].push_back(target_ids.empty() ? id
                                                            : target_ids[static_cast<size_t>(id)]);
  }
}

void DraftHead::Discard(int64_t num_in_flight) noexcept {
  try {
    for (; num_in_flight > 0; --num_in_flight) queue_->Collect(&drawn_);
  } catch (...) {  // then all are lost
  }
}

std::vector<std::vector<int32_t>> DraftHead::Propose(std::span<const DraftWork> work,
                                                     const StateMemory& states) {
  Drafts drafts(work.size());
  int64_t num_steps = 1;
  for (const DraftWork& w : work) num_steps = std::max(num_steps, w.length);
  const int64_t most_in_flight = queue_ != nullptr ? StepQueue::kMaxInFlight : 1;
  int64_t num_submitted = 0;
  int64_t num_collected = 0;
  try {
    while (num_collected < num_steps) {
      if (num_submitted < num_steps && num_submitted - num_collected < most_in_flight) {
        if (num_submitted == 0) {
          Feed(work, states);
        } else {
          Continue(work, num_submitted, drafts);
        }
        ++num_submitted;
      } else {
        Collect(num_collected, &drafts);
        ++num_collected;
      }
    }
  } catch (...) {
    if (queue_ != nullptr) Discard(num_submitted - num_collected);
    throw;
  }
  return drafts;
}

}  // namespace mlc_native
