#include "models/draft_head.h"

#include <algorithm>
#include <utility>

#include "support/check.h"

namespace mlc_native {
namespace {

int32_t MostLikely(std::span<const float> logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

}  // namespace

DraftHead::DraftHead(std::unique_ptr<Model> model) : model_(std::move(model)) {
  MLC_CHECK(model_->metadata().draft_head.has_value()) << "the model is no draft head";
}

void DraftHead::Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_sequences) {
  model_->Allocate(num_pages, max_num_rows, max_num_sequences);
}

LogitsView DraftHead::Feed(std::span<const DraftWork> work, bool proposes) {
  target_states_.clear();
  for (const DraftWork& w : work) {
    const auto first_row = static_cast<int32_t>(tokens_.size());
    tokens_.insert(tokens_.end(), w.next_tokens.begin(), w.next_tokens.end());
    target_states_.insert(target_states_.end(), w.states.begin(), w.states.end());
    const auto end = static_cast<int32_t>(tokens_.size());
    slices_.push_back({first_row, end - first_row, w.position, w.block_table});
    if (proposes) rows_.push_back(end - 1);
  }
  ForwardBatch batch{.token_ids = tokens_, .sequences = slices_, .logits_rows = rows_};
  batch.draft.target = target_states_;
  const int32_t streams[] = {info().own_stream};
  batch.hidden = {.rows = rows_, .streams = streams, .out = own_states_};
  return model_->Forward(batch);
}

// tokens_ are the drafts of the step before.
LogitsView DraftHead::Continue(std::span<const DraftWork> work, int64_t step) {
  for (const DraftWork& w : work) {
    const auto row = static_cast<int32_t>(slices_.size());
    slices_.push_back({row, 1, w.position + std::ssize(w.next_tokens) - 1 + step, w.block_table});
    rows_.push_back(row);
  }
  std::swap(own_states_, read_states_);
  ForwardBatch batch{.token_ids = tokens_, .sequences = slices_, .logits_rows = rows_};
  batch.draft.own = read_states_;
  const int32_t streams[] = {info().own_stream};
  batch.hidden = {.rows = rows_, .streams = streams, .out = own_states_};
  return model_->Forward(batch);
}

std::vector<std::vector<int32_t>> DraftHead::Propose(std::span<const DraftWork> work,
                                                     int64_t length) {
  std::vector<std::vector<int32_t>> drafts(work.size());
  const size_t states = length == 0 ? 0 : work.size();
  const auto hidden = static_cast<size_t>(model_->metadata().hidden_size);
  own_states_.resize(states * hidden);
  read_states_.resize(states * hidden);
  tokens_.clear();
  for (int64_t step = 0; step < std::max<int64_t>(length, 1); ++step) {
    slices_.clear();
    rows_.clear();
    const LogitsView logits = step == 0 ? Feed(work, length > 0) : Continue(work, step);
    tokens_.clear();
    for (int64_t i = 0; i < logits.num_rows; ++i) {
      const int32_t id = MostLikely(logits.row(i));
      const auto& target_ids = info().target_ids;
      tokens_.push_back(target_ids.empty() ? id : target_ids[static_cast<size_t>(id)]);
      drafts[static_cast<size_t>(i)].push_back(tokens_.back());
    }
  }
  return drafts;
}

}  // namespace mlc_native
