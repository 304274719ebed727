#include "models/batch_check.h"

#include "support/check.h"

namespace mlc_native {

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
}

}  // namespace mlc_native
