#include "fake_model/fake_steps.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "fake_model/fake_model.h"
#include "support/check.h"

namespace mlc_native::testing {
namespace {

void FailAt(const std::vector<int64_t>& calls, int64_t call, const char* what) {
  if (std::find(calls.begin(), calls.end(), call) == calls.end()) return;
  throw std::runtime_error(std::string("fake model: ") + what + ' ' + std::to_string(call) +
                           " fails");
}

// The counts of a row, and one more occurrence of a token.
std::vector<std::pair<int32_t, int32_t>> Count(TokenCountsView counts, int32_t token) {
  std::vector<std::pair<int32_t, int32_t>> result(counts.begin(), counts.end());
  const auto found = std::find_if(result.begin(), result.end(),
                                  [token](const auto& count) { return count.first == token; });
  if (found != result.end()) {
    ++found->second;
  } else {
    result.emplace_back(token, 1);
  }
  return result;
}

}  // namespace

FakeSteps::FakeSteps(FakeModel* model) : model_(*model), steps_(model) {}

// What that row of the newest step draws, which must not be collected yet.
int32_t FakeSteps::DrawnBefore(int64_t row) const {
  MLC_CHECK(!in_flight_.empty()) << "a pending token, and no step in flight";
  MLC_CHECK(row >= 0 && row < std::ssize(newest_)) << "row " << row << " of " << newest_.size();
  return newest_[row];
}

// What the place will hold when all steps that this one follows have run.
int32_t FakeSteps::ReadPlace(const TokenMemory& memory, int32_t place) {
  const int32_t* const at = memory.data() + place;
  const auto own = std::find_if(unpublished_.rbegin(), unpublished_.rend(),
                                [at](const Written& written) { return written.at == at; });
  const int32_t value = own != unpublished_.rend() ? own->value : *at;
  num_early_reads_ += value == FakeTokens::kEmpty ? 1 : 0;
  MLC_CHECK(value != FakeTokens::kEmpty) << "place " << place << " is empty";
  return value;
}

int32_t FakeSteps::ReadCount(const TokenMemory& memory, int32_t place, int32_t most) {
  const int32_t count = ReadPlace(memory, place);
  MLC_CHECK(count >= 0 && count <= most) << count << " of " << most << " guesses are right";
  return count;
}

// What was there before is gone, for those, too, that do not see the new value yet.
void FakeSteps::WritePlace(const TokenMemory& memory, int32_t place, int32_t value) {
  int32_t* const at = memory.data() + place;
  *at = FakeTokens::kEmpty;
  std::erase_if(unpublished_, [at](const Written& written) { return written.at == at; });
  unpublished_.push_back({at, value});
}

void FakeSteps::ReadTokens(const ForwardBatch& batch, Resolved* resolved) {
  for (int32_t& token : resolved->token_ids) {
    if (IsTokenAt(token)) {
      token = ReadPlace(*batch.tokens, PlaceOf(token));
    } else if (token < 0) {
      token = DrawnBefore(-1 - int64_t{token});
    }
  }
  for (SequenceSlice& slice : resolved->sequences) {
    if (!slice.behind) continue;
    // The device has places for all tokens that may come, whatever the count is.
    const int64_t end = slice.position + slice.behind.num_guesses + slice.num_tokens;
    const int64_t longest = model_.options().context_window_size;
    MLC_CHECK(longest <= 0 || end <= longest) << "up to " << end << " tokens of " << longest;
    MLC_CHECK(end <= std::ssize(slice.block_table) * kKvPageSize)
        << slice.block_table.size() << " pages for up to " << end << " tokens";
    slice.position += ReadCount(*batch.tokens, slice.behind.count(), slice.behind.num_guesses);
    slice.block_table = slice.block_table.first(
        static_cast<size_t>((slice.position + slice.num_tokens + kKvPageSize - 1) / kKvPageSize));
  }
  for (size_t i = 0; i < batch.logits_behind.size(); ++i) {
    const int32_t place = batch.logits_behind[i];
    if (place == TokenBlock::kNone) continue;
    MoveLogits(i, ReadPlace(*batch.tokens, place), resolved);
  }
}

void FakeSteps::MoveLogits(size_t index, int32_t count, Resolved* resolved) {
  const int32_t row = resolved->logits_rows[index] += count;
  const auto slice =
      std::find_if(resolved->sequences.begin(), resolved->sequences.end(),
                   [row](const SequenceSlice& s) { return row < s.first_row + s.num_tokens; });
  MLC_CHECK(slice != resolved->sequences.end() && slice->first_row <= row - count)
      << "row " << row << " is of another sequence";
  const int32_t num_cut = slice->first_row + slice->num_tokens - 1 - row;
  slice->num_tokens -= num_cut;
  for (int64_t i = 0; i < num_cut; ++i) {
    const int64_t position = slice->position + slice->num_tokens + i;
    resolved->spoiled.push_back(
        int64_t{slice->block_table[static_cast<size_t>(position / kKvPageSize)]} * kKvPageSize +
        position % kKvPageSize);
  }
  slice->block_table = slice->block_table.first(
      static_cast<size_t>((slice->position + slice->num_tokens + kKvPageSize - 1) / kKvPageSize));
  const auto cut = [&](std::vector<int32_t>& rows) {
    if (!rows.empty()) rows.erase(rows.begin() + row + 1, rows.begin() + row + 1 + num_cut);
  };
  cut(resolved->token_ids);
  cut(resolved->state_places);
  for (auto behind = slice + 1; behind != resolved->sequences.end(); ++behind) {
    behind->first_row -= num_cut;
  }
  for (InputRows& rows : resolved->input_rows) {
    if (rows.first_row > row) rows.first_row -= num_cut;
  }
  for (size_t i = index + 1; i < resolved->logits_rows.size(); ++i) {
    resolved->logits_rows[i] -= num_cut;
  }
}

void FakeSteps::Forward(const ForwardBatch& batch) {
  MLC_CHECK(num_in_flight() < kMaxInFlight) << num_in_flight() << " steps in flight";
  has_forward_ = false;
  Resolved rows(batch);
  ReadTokens(batch, &rows);
  ForwardBatch computed = batch;
  computed.token_ids = rows.token_ids;
  computed.sequences = rows.sequences;
  computed.input_rows = rows.input_rows;
  computed.logits_rows = rows.logits_rows;
  computed.draft.places = rows.state_places;
  next_ = {};
  if (batch.hidden.rows.empty()) {
    steps_.Forward(computed);
  } else {
    ForwardWithStates(computed);
  }
  model_.Spoil(rows.spoiled);
  next_rows_ = std::move(rows);
  tokens_ = batch.tokens;
  has_forward_ = true;
}

void FakeSteps::ForwardWithStates(ForwardBatch batch) {
  const HiddenStates asked = batch.hidden;
  const int64_t width = asked.memory->width();
  const auto hidden = model_.MakeStateMemory(std::ssize(asked.rows), width);
  std::vector<int32_t> places;
  for (const int32_t place : asked.places) {
    next_.places.push_back(asked.memory->data() + place * width);
    // Whoever reads states of a step before reads those of this one, which has run by then.
    for (Step& step : in_flight_) std::ranges::replace(step.places, next_.places.back(), nullptr);
    std::fill_n(next_.places.back(), width, -1.0f);  // no token and no stream
    places.push_back(static_cast<int32_t>(places.size()));
  }
  batch.hidden.memory = hidden.get();
  batch.hidden.places = places;
  steps_.Forward(batch);
  next_.states.assign(hidden->data(), hidden->data() + std::ssize(places) * width);
}

std::vector<DrawnToken> FakeSteps::Draw(std::span<const TokenRow> rows) {
  MLC_CHECK(has_forward_) << "a Sample without a Forward";
  has_forward_ = false;
  ++num_samples_;
  if (on_sample_) on_sample_();
  FailAt(model_.options().fail_at_sample, num_samples_, "sample");
  std::vector<TokenRow> own(rows.begin(), rows.end());
  std::deque<std::vector<std::pair<int32_t, int32_t>>> counts;
  for (TokenRow& row : own) {
    if (row.behind != TokenRow::kNone) {
      row.position += static_cast<uint64_t>(ReadPlace(*tokens_, row.behind));
    }
    if (row.pending_row == TokenRow::kNone) continue;
    row.counts = counts.emplace_back(Count(row.counts, DrawnBefore(row.pending_row)));
  }
  steps_.Sample(own);
  std::vector<DrawnToken> drawn;
  steps_.Collect(&drawn);
  const auto cost = model_.CostOf(std::ssize(model_.written()));
  if (cost.count() > 0) done_ = std::max(done_, std::chrono::steady_clock::now()) + cost;
  return drawn;
}

void FakeSteps::WriteBlocks(std::vector<DrawnToken>* drawn) {
  const std::vector<int32_t>& rows = next_rows_.logits_rows;
  for (const SequenceSlice& slice : next_rows_.sequences) {
    const TokenBlock& block = slice.block;
    if (!block) continue;
    const int32_t last = slice.first_row + slice.num_tokens - 1;
    const int32_t first = last - block.num_guesses;
    const auto begin = std::find(rows.begin(), rows.end(), first) - rows.begin();
    int32_t count = 0;
    for (int32_t i = 0; i <= block.num_guesses; ++i) {
      MLC_CHECK(begin + i < std::ssize(rows) && rows[begin + i] == first + i)
          << "logits of a guess";
      DrawnToken& token = (*drawn)[begin + i];
      WritePlace(*tokens_, block.drawn(i), std::max(token.result.token.token_id, 0));
      if (i == block.num_guesses) break;
      token.draft_token = next_rows_.token_ids[first + i + 1];
      if (count == i && token.error.empty() && token.result.token.token_id == token.draft_token) {
        ++count;
      }
    }
    WritePlace(*tokens_, block.count(), count);
    WritePlace(*tokens_, block.next(), std::max((*drawn)[begin + count].result.token.token_id, 0));
  }
}

void FakeSteps::Sample(std::span<const TokenRow> rows) {
  std::vector<DrawnToken> drawn = Draw(rows);
  WriteBlocks(&drawn);
  std::vector<int32_t> newest;
  for (const DrawnToken& token : drawn) newest.push_back(token.result.token.token_id);
  next_.drawn = std::move(drawn);
  next_.written = model_.written();
  next_.done = done_;
  in_flight_.push_back(std::move(next_));
  newest_ = std::move(newest);
}

void FakeSteps::SampleInto(std::span<const TokenRow> rows, std::span<const int32_t> places) {
  const std::vector<DrawnToken> drawn = Draw(rows);
  MLC_CHECK(places.size() == drawn.size()) << places.size() << " places of " << drawn.size();
  for (size_t i = 0; i < places.size(); ++i) {
    WritePlace(*tokens_, places[i], std::max(drawn[i].result.token.token_id, 0));
  }
}

void FakeSteps::RunBehind(StepQueue& other) { dynamic_cast<FakeSteps&>(other).Publish(); }

void FakeSteps::Publish() {
  for (const Written& written : unpublished_) *written.at = written.value;
  unpublished_.clear();
  for (Step& step : in_flight_) step.WriteStates();
}

void FakeSteps::Step::WriteStates() {
  const float* state = states.data();
  for (float* place : places) {
    const auto width = std::ssize(states) / std::ssize(places);
    if (place != nullptr) std::copy_n(state, width, place);
    state += width;
  }
  places.clear();
}

void FakeSteps::NotePageCopies(std::span<const PageCopy> copies) {
  for (Step& step : in_flight_) {
    for (const PageCopy& copy : copies) {
      std::erase_if(step.written,
                    [&](int64_t place) { return place / kKvPageSize == copy.dst_page; });
      const size_t count = step.written.size();
      for (size_t i = 0; i < count; ++i) {
        const int64_t place = step.written[i];
        if (place / kKvPageSize != copy.src_page) continue;
        step.written.push_back(int64_t{copy.dst_page} * kKvPageSize + place % kKvPageSize);
      }
    }
  }
}

void FakeSteps::Collect(std::vector<DrawnToken>* tokens) {
  MLC_CHECK(!in_flight_.empty()) << "no step in flight";
  ++num_collects_;
  try {
    if (on_collect_) on_collect_();
    FailAt(model_.options().fail_at_collect, num_collects_, "collect");
  } catch (...) {
    for (const Step& step : in_flight_) model_.Spoil(step.written);
    in_flight_.clear();
    throw;
  }
  Step& step = in_flight_.front();
  model_.SpendTimeUntil(step.done);
  step.WriteStates();
  *tokens = std::move(step.drawn);
  in_flight_.pop_front();
}

}  // namespace mlc_native::testing
