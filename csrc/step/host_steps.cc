#include "step/host_steps.h"

#include <algorithm>
#include <utility>

#include "support/check.h"

namespace mlc_native {

void HostSteps::Forward(const ForwardBatch& batch) {
  MLC_CHECK(!has_step_) << "the step before is not collected";
  const std::span<const int32_t> rows = batch.logits_rows;
  num_rows_ = rows.size();
  num_draws_.clear();
  ForwardBatch distinct = batch;
  if (std::adjacent_find(rows.begin(), rows.end()) != rows.end())
    distinct.logits_rows = Merge(rows);
  logits_ = model_->Forward(distinct);
  MLC_CHECK(logits_.num_rows == std::ssize(distinct.logits_rows))
      << logits_.num_rows << " rows of logits, wanted " << distinct.logits_rows.size();
}

// Each row once, and how often it is wanted.
std::span<const int32_t> HostSteps::Merge(std::span<const int32_t> rows) {
  distinct_.clear();
  for (int32_t row : rows) {
    if (distinct_.empty() || distinct_.back() != row) {
      distinct_.push_back(row);
      num_draws_.push_back(0);
    }
    ++num_draws_.back();
  }
  return distinct_;
}

void HostSteps::Sample(std::span<const TokenRow> rows) {
  MLC_CHECK(rows.size() == num_rows_) << rows.size() << " of " << num_rows_;
  drawn_.resize(num_rows_);
  size_t next = 0;
  for (int64_t i = 0; i < logits_.num_rows; ++i) {
    const std::span<float> logits = logits_.row(i);
    const int num_draws = num_draws_.empty() ? 1 : num_draws_[i];
    if (num_draws > 1) row_copy_.assign(logits.begin(), logits.end());
    for (int draw = 0; draw < num_draws; ++draw, ++next) {
      // Sampling has overwritten the row.
      if (draw > 0) std::copy(row_copy_.begin(), row_copy_.end(), logits.begin());
      Draw(rows[next], logits, &drawn_[next]);
    }
  }
  has_step_ = true;
}

void HostSteps::Draw(const TokenRow& row, std::span<float> logits, DrawnToken* drawn) {
  drawn->error.clear();
  try {
    if (row.scored_token != TokenRow::kNone) {
      drawn->result = sampler_.Score(logits, row.scored_token, row.num_top());
      return;
    }
    drawn->result = sampler_.Sample(logits, {.config = row.config,
                                             .generated = row.counts,
                                             .sequence = row.sequence,
                                             .position = row.position,
                                             .allowed = row.allowed});
  } catch (const SamplingError& error) {
    drawn->error = error.what();
  }
}

void HostSteps::Collect(std::vector<DrawnToken>* tokens) {
  MLC_CHECK(std::exchange(has_step_, false)) << "no step to collect";
  tokens->swap(drawn_);
}

}  // namespace mlc_native
