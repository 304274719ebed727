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

void FakeSteps::Forward(const ForwardBatch& batch) {
  MLC_CHECK(num_in_flight() < kMaxInFlight) << num_in_flight() << " steps in flight";
  std::vector<int32_t> token_ids(batch.token_ids.begin(), batch.token_ids.end());
  for (int32_t& token : token_ids) {
    if (token < 0) token = DrawnBefore(-1 - int64_t{token});
  }
  has_forward_ = false;
  ForwardBatch computed = batch;
  computed.token_ids = token_ids;
  next_ = {};
  if (batch.hidden.rows.empty()) {
    steps_.Forward(computed);
  } else {
    ForwardWithStates(computed);
  }
  has_forward_ = true;
}

void FakeSteps::ForwardWithStates(ForwardBatch batch) {
  const HiddenStates asked = batch.hidden;
  const int64_t width = asked.memory->width();
  const auto hidden = model_.MakeStateMemory(std::ssize(asked.rows), width);
  std::vector<int32_t> places;
  for (const int32_t place : asked.places) {
    next_.places.push_back(asked.memory->data() + place * width);
    std::fill_n(next_.places.back(), width, -1.0f);  // no token and no stream
    places.push_back(static_cast<int32_t>(places.size()));
  }
  batch.hidden.memory = hidden.get();
  batch.hidden.places = places;
  steps_.Forward(batch);
  next_.states.assign(hidden->data(), hidden->data() + std::ssize(places) * width);
}

void FakeSteps::Sample(std::span<const TokenRow> rows) {
  MLC_CHECK(has_forward_) << "a Sample without a Forward";
  has_forward_ = false;
  ++num_samples_;
  if (on_sample_) on_sample_();
  FailAt(model_.options().fail_at_sample, num_samples_, "sample");
  std::vector<TokenRow> own(rows.begin(), rows.end());
  std::deque<std::vector<std::pair<int32_t, int32_t>>> counts;
  for (TokenRow& row : own) {
    if (row.pending_row == TokenRow::kNone) continue;
    row.counts = counts.emplace_back(Count(row.counts, DrawnBefore(row.pending_row)));
  }
  steps_.Sample(own);
  std::vector<DrawnToken> drawn;
  steps_.Collect(&drawn);
  std::vector<int32_t> newest;
  for (const DrawnToken& token : drawn) newest.push_back(token.result.token.token_id);
  const auto cost = model_.CostOf(std::ssize(model_.written()));
  if (cost.count() > 0) done_ = std::max(done_, std::chrono::steady_clock::now()) + cost;
  next_.drawn = std::move(drawn);
  next_.written = model_.written();
  next_.done = done_;
  in_flight_.push_back(std::move(next_));
  newest_ = std::move(newest);
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
  const float* state = step.states.data();
  for (float* place : step.places) {
    const auto width = std::ssize(step.states) / std::ssize(step.places);
    std::copy_n(state, width, place);
    state += width;
  }
  *tokens = std::move(in_flight_.front().drawn);
  in_flight_.pop_front();
}

}  // namespace mlc_native::testing
