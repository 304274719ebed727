#include "models/batch_check.h"

#include <algorithm>
#include <functional>

#include "support/check.h"

namespace mlc_native {
namespace {

void CheckHiddenStates(const HiddenStates& hidden, int64_t num_rows, const BatchLimits& limits) {
  if (hidden.rows.empty()) return;
  MLC_CHECK(limits.num_streams > 0) << "the model gives no hidden states";
  MLC_CHECK(std::ranges::is_sorted(hidden.rows, std::ranges::less_equal()) &&
            hidden.rows.front() >= 0 && hidden.rows.back() < num_rows)
      << "rows of hidden states are not ascending rows of " << num_rows;
  for (int32_t stream : hidden.streams) {
    MLC_CHECK(stream >= 0 && stream < limits.num_streams)
        << "stream " << stream << " of " << limits.num_streams;
  }
  const size_t size = hidden.rows.size() * hidden.streams.size();
  MLC_CHECK(hidden.out.size() == size * static_cast<size_t>(limits.hidden_size))
      << hidden.out.size() << " floats for " << size << " hidden states";
}

void CheckDraftInput(const DraftInput& draft, int64_t num_rows, const BatchLimits& limits) {
  const bool of_target = !draft.target.empty();
  const int64_t width = of_target ? limits.draft_input_size : limits.hidden_size;
  const int64_t wanted = limits.draft_input_size == 0 ? 0 : num_rows * width;
  MLC_CHECK(std::ssize(of_target ? draft.target : draft.own) == wanted)
      << draft.target.size() << " and " << draft.own.size() << " floats for " << num_rows
      << " rows of a draft head that reads " << limits.draft_input_size;
  MLC_CHECK(!of_target || draft.own.empty()) << "hidden states of the target and of the head";
}

}  // namespace

void CheckBatch(const ForwardBatch& batch, const BatchLimits& limits) {
  const auto num_rows = static_cast<int64_t>(batch.token_ids.size());
  MLC_CHECK(num_rows > 0 && num_rows <= limits.max_num_rows)
      << num_rows << " of " << limits.max_num_rows;
  MLC_CHECK(static_cast<int64_t>(batch.logits_rows.size()) <= limits.max_num_logits)
      << batch.logits_rows.size() << " of " << limits.max_num_logits;
  int64_t row = 0;
  for (const SequenceSlice& s : batch.sequences) {
    const int64_t end = s.position + s.num_tokens;
    MLC_CHECK(s.first_row == row && s.num_tokens > 0) << "row " << row;
    MLC_CHECK(s.position >= 0 && end <= limits.num_positions)
        << end << " of " << limits.num_positions;
    MLC_CHECK(static_cast<int64_t>(s.block_table.size()) * kKvPageSize >= end)
        << s.block_table.size() << " pages for " << end << " tokens";
    row += s.num_tokens;
  }
  MLC_CHECK(row == num_rows) << row << " rows in sequences, " << num_rows << " tokens";
  for (int32_t logits_row : batch.logits_rows) {
    MLC_CHECK(logits_row >= 0 && logits_row < num_rows) << "logits row " << logits_row;
  }
  CheckHiddenStates(batch.hidden, num_rows, limits);
  CheckDraftInput(batch.draft, num_rows, limits);
}

}  // namespace mlc_native
