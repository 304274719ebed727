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

DraftHead::DraftHead(std::unique_ptr<Model> model) : model_(std::move(model)) {
  MLC_CHECK(model_->metadata().draft_head.has_value()) << "the model is no draft head";
  greedy_.temperature = 0;
}

void DraftHead::Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_sequences) {
  model_->Allocate(num_pages, max_num_rows, max_num_sequences);
}

void DraftHead::Feed(std::span<const DraftWork> work) {
  target_states_.clear();
  for (const DraftWork& w : work) {
    const auto first_row = static_cast<int32_t>(tokens_.size());
    tokens_.insert(tokens_.end(), w.next_tokens.begin(), w.next_tokens.end());
    target_states_.insert(target_states_.end(), w.states.begin(), w.states.end());
    const auto end = static_cast<int32_t>(tokens_.size());
    slices_.push_back(MakeSlice(first_row, end - first_row, w.position, w.block_table));
    if (w.length > 0) rows_.push_back(end - 1);
  }
  Forward({.target = target_states_, .own = {}, .num_guessed = 0});
}

// tokens_ and read_states_ are those of the active drafts.
void DraftHead::Continue(std::span<const DraftWork> work, int64_t step) {
  for (size_t i : active_) {
    const DraftWork& w = work[i];
    const auto row = static_cast<int32_t>(slices_.size());
    const int64_t position = w.position + std::ssize(w.next_tokens) - 1 + step;
    slices_.push_back(MakeSlice(row, 1, position, w.block_table));
    rows_.push_back(row);
  }
  Forward({.target = {}, .own = read_states_, .num_guessed = step});
}

void DraftHead::Forward(const DraftInput& input) {
  own_states_.resize(rows_.size() * static_cast<size_t>(model_->metadata().hidden_size));
  const int32_t streams[] = {info().own_stream};
  Run({.token_ids = tokens_,
       .sequences = slices_,
       .logits_rows = rows_,
       .hidden = {.rows = rows_, .streams = streams, .out = own_states_},
       .draft = input});
}

void DraftHead::Run(const ForwardBatch& batch) {
  likely_.clear();
  StepQueue* const queue = model_->step_queue();
  if (queue == nullptr) {
    const LogitsView logits = model_->Forward(batch);
    for (int64_t i = 0; i < logits.num_rows; ++i) likely_.push_back(MostLikely(logits.row(i)));
    return;
  }
  queue->Forward(batch);
  TokenRow row;
  row.config = &greedy_;
  token_rows_.assign(rows_.size(), row);
  queue->Sample(token_rows_);
  queue->Collect(&drawn_);
  // Where nothing can be drawn, any token may be guessed.
  for (const DrawnToken& drawn : drawn_) {
    likely_.push_back(drawn.error.empty() ? drawn.result.token.token_id : 0);
  }
}

void DraftHead::Guess(std::span<const DraftWork> work, Drafts* drafts) {
  const auto& target_ids = info().target_ids;
  const auto hidden = static_cast<size_t>(model_->metadata().hidden_size);
  tokens_.clear();
  read_states_.clear();
  size_t num_active = 0;
  for (size_t row = 0; row < active_.size(); ++row) {
    const size_t i = active_[row];
    std::vector<int32_t>& draft = (*drafts)[i];
    const int32_t id = likely_[row];
    draft.push_back(target_ids.empty() ? id : target_ids[static_cast<size_t>(id)]);
    if (std::ssize(draft) == work[i].length) continue;
    tokens_.push_back(draft.back());
    const auto state = std::span(own_states_).subspan(row * hidden, hidden);
    read_states_.insert(read_states_.end(), state.begin(), state.end());
    active_[num_active++] = i;
  }
  active_.resize(num_active);
}

std::vector<std::vector<int32_t>> DraftHead::Propose(std::span<const DraftWork> work) {
  Drafts drafts(work.size());
  active_.clear();
  for (size_t i = 0; i < work.size(); ++i) {
    if (work[i].length > 0) active_.push_back(i);
  }
  tokens_.clear();
  int64_t step = 0;
  do {
    slices_.clear();
    rows_.clear();
    if (step == 0) {
      Feed(work);
    } else {
      Continue(work, step);
    }
    Guess(work, &drafts);
    ++step;
  } while (!active_.empty());
  return drafts;
}

}  // namespace mlc_native
