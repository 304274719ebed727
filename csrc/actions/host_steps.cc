#include "actions/host_steps.h"

#include <algorithm>
#include <iterator>

#include "support/check.h"

namespace mlc_native {

void HostSteps::Forward(const ForwardBatch& batch) {
  MLC_CHECK(drawn_.empty()) << "the step before is not collected";
  logits_rows_.assign(batch.logits_rows.begin(), batch.logits_rows.end());
  distinct_.clear();
  std::unique_copy(logits_rows_.begin(), logits_rows_.end(), std::back_inserter(distinct_));
  logits_ = model_->Forward(
      {.token_ids = batch.token_ids, .sequences = batch.sequences, .logits_rows = distinct_});
  MLC_CHECK(logits_.num_rows == std::ssize(distinct_))
      << logits_.num_rows << " rows of logits, wanted " << distinct_.size();
}

void HostSteps::Sample(std::span<const TokenRow> rows) {
  MLC_CHECK(rows.size() == logits_rows_.size()) << rows.size() << " of " << logits_rows_.size();
  drawn_.resize(rows.size());
  try {
    int64_t index = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::span<float> row = logits_.row(index);
      const bool again = SameRow(i, i + 1);
      if (i > 0 && SameRow(i - 1, i)) {
        std::copy(row_copy_.begin(), row_copy_.end(), row.begin());
      } else if (again) {
        row_copy_.assign(row.begin(), row.end());  // sampling overwrites the row
      }
      Draw(rows[i], row, &drawn_[i]);
      if (!again) ++index;
    }
  } catch (...) {
    drawn_.clear();
    throw;
  }
}

void HostSteps::Draw(const TokenRow& row, std::span<float> logits, DrawnToken* drawn) {
  drawn->error.clear();
  try {
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
  tokens->clear();
  tokens->swap(drawn_);
}

}  // namespace mlc_native
