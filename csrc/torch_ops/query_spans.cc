#include "torch_ops/query_spans.h"

#include <algorithm>

#include "kernels/kv_format.h"
#include "torch_ops/arguments.h"

namespace mlc_native::ops {

std::vector<QuerySpan> DecodeSpans(const Tensor& lengths) {
  const auto length = PerRow<int64_t>("lengths", lengths, lengths.numel(), 0);
  std::vector<QuerySpan> spans;
  for (int64_t i = 0; i < lengths.numel(); ++i) {
    if (length[i] == 0) continue;
    spans.push_back({.row_begin = i, .num_rows = 1, .first_position = length[i] - 1, .table = i});
  }
  return spans;
}

std::vector<QuerySpan> PrefillSpans(const Tensor& lengths, const Tensor& query_starts,
                                    int64_t num_rows) {
  const int64_t m = lengths.numel();
  const auto length = PerRow<int64_t>("lengths", lengths, m, 0);
  const auto start = PerRow<int64_t>("query_starts", query_starts, m + 1, 0);
  CheckValue(start[0] == 0 && start[m] == num_rows,
             "query_starts must go from 0 to q's number of rows, ", num_rows, ", got ", start[0],
             " to ", start[m]);
  std::vector<QuerySpan> spans;
  for (int64_t i = 0; i < m; ++i) {
    const int64_t rows = start[i + 1] - start[i];
    CheckValue(rows >= 0, "query_starts must ascend, got ", start[i], " before ", start[i + 1]);
    CheckValue(rows <= length[i], "lengths must include the rows of q, got ", length[i], " for ",
               rows, " rows of sequence ", i);
    if (rows == 0) continue;
    spans.push_back(
        {.row_begin = start[i], .num_rows = rows, .first_position = length[i] - rows, .table = i});
  }
  return spans;
}

void CheckPages(const Tensor& block_tables, const std::vector<QuerySpan>& spans, int64_t window,
                int64_t num_pages) {
  if (!block_tables.is_cpu()) return;
  for (const QuerySpan& span : spans) {
    const int64_t first_key =
        window > 0 ? std::max<int64_t>(0, span.first_position - window + 1) : 0;
    const int64_t begin = first_key / kernels::kPageSize;
    const int64_t end = (span.first_position + span.num_rows - 1) / kernels::kPageSize + 1;
    const Tensor table = torch::stable::select(block_tables, 0, span.table);
    CheckRange("block_tables", Narrow(table, 0, begin, end - begin), num_pages);
  }
}

}  // namespace mlc_native::ops
