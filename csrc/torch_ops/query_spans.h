// Rows of queries by sequence, read from the arguments of the attention ops. Any thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "torch_ops/tensor.h"

namespace mlc_native::ops {

struct AttentionOptions {
  std::optional<double> scale;  // absent: 1 / sqrt(head_dim)
  double soft_cap = 0;
  int64_t window = 0;

  float Scale(int64_t head_dim) const {
    return static_cast<float>(scale.value_or(1 / std::sqrt(static_cast<double>(head_dim))));
  }
};

// Rows [row_begin, row_begin + num_rows) are positions of one sequence, from first_position on.
struct QuerySpan {
  int64_t row_begin = 0;
  int64_t num_rows = 0;
  int64_t first_position = 0;
  int64_t table = 0;  // row of the block tables
};

// Returns one row per sequence, at its last position, and none for sequences of length 0.
std::vector<QuerySpan> DecodeSpans(const Tensor& lengths);
// Returns the last rows of each sequence. Checks that query_starts ascends from 0 to num_rows.
std::vector<QuerySpan> PrefillSpans(const Tensor& lengths, const Tensor& query_starts,
                                    int64_t num_rows);

// Checks that the pages that these rows attend to are in [0, num_pages), where CheckRange checks.
void CheckPages(const Tensor& block_tables, const std::vector<QuerySpan>& spans, int64_t window,
                int64_t num_pages);

}  // namespace mlc_native::ops
