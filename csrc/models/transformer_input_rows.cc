// Rows in place of tokens, on the CPU: what they are, where rope puts them and what they see.
#include <algorithm>
#include <functional>
#include <numeric>

#include "models/transformer_ops.h"
#include "support/check.h"

namespace mlc_native {

// The rows of a slice: of images that see each other each for itself, and what is between them.
void Transformer::AddSequences(const ForwardBatch& batch, const SequenceSlice& s) {
  const int32_t end = s.first_row + s.num_tokens;
  const auto add = [&](int32_t row_begin, int32_t row_end, int64_t last_key) {
    if (row_begin == row_end) return;
    sequences_.push_back({.row_begin = row_begin,
                          .num_rows = row_end - row_begin,
                          .first_position = s.position + row_begin - s.first_row,
                          .block_table = s.block_table.data(),
                          .last_key = last_key});
  };
  int32_t next = s.first_row;
  if (config_.arch->rows_see_each_other) {
    for (const InputRows& rows : batch.input_rows) {
      if (rows.first_row < s.first_row || rows.first_row >= end) continue;
      add(next, rows.first_row, 0);
      next = rows.first_row + rows.num_rows;
      add(rows.first_row, next, LastKeyOf(batch, s, rows.first_row));
    }
  }
  add(next, end, 0);
}

// What a row sees beyond its own position.
int64_t Transformer::LastKeyOf(const ForwardBatch& batch, const SequenceSlice& s,
                               int32_t row) const {
  if (!config_.arch->rows_see_each_other) return 0;
  for (const InputRows& rows : batch.input_rows) {
    const int32_t last = rows.first_row + rows.num_rows - 1;
    if (rows.first_row <= row && row <= last) return s.position + last - s.first_row;
  }
  return 0;
}

void Transformer::PlaceRopes(const ForwardBatch& batch) {
  has_row_ropes_ = std::ranges::any_of(batch.sequences, [](const SequenceSlice& s) {
    return !s.rope_positions.empty() || s.rope_shift != 0;
  });
  if (!has_row_ropes_) return;
  row_positions_.clear();
  for (const SequenceSlice& s : batch.sequences) {
    MLC_CHECK(metadata_.row_positions && std::ssize(s.rope_positions) <= s.num_tokens)
        << s.rope_positions.size() << " positions for " << s.num_tokens << " rows";
    row_positions_.insert(row_positions_.end(), s.rope_positions.begin(), s.rope_positions.end());
    for (int64_t j = std::ssize(s.rope_positions); j < s.num_tokens; ++j) {
      const auto place = static_cast<int32_t>(s.position + j + s.rope_shift);
      row_positions_.push_back({place, place, place});
    }
  }
  for (const RowPosition& position : row_positions_) {
    for (const int32_t number : position) {
      MLC_CHECK(number >= 0 && number < num_positions_) << number << " of " << num_positions_;
    }
  }
  row_ropes_.resize(ropes_.size());
  for (size_t i = 0; i < ropes_.size(); ++i) {
    row_ropes_[i] = RopeOfRows(ropes_[i], config_.ropes[i].components, row_positions_);
  }
  row_numbers_.resize(row_positions_.size());
  std::iota(row_numbers_.begin(), row_numbers_.end(), 0);
}

// In place of embeddings.
void Transformer::Ops::PlaceInputRows(const Activations& out) const {
  const float scale = config_.InputScale();
  for (const InputRows& rows : batch_.input_rows) {
    for (int64_t row = 0; row < rows.num_rows; ++row) {
      const float* const values = rows.values + row * config_.input_size();
      std::transform(values, values + config_.hidden_size,
                     out.data + (rows.first_row + row) * out.width,
                     [scale](float x) { return x * scale; });
    }
  }
}

void Transformer::Ops::AddInputRows(size_t layer) {
  RunRemembered();
  const Activations& out = buffers_.residual;
  const int64_t part = (static_cast<int64_t>(layer) + 1) * config_.hidden_size;
  for (const InputRows& rows : batch_.input_rows) {
    for (int64_t row = 0; row < rows.num_rows; ++row) {
      const float* const values = rows.values + row * config_.input_size() + part;
      float* const sums = out.data + (rows.first_row + row) * out.width;
      std::transform(values, values + config_.hidden_size, sums, sums, std::plus());
    }
  }
}

}  // namespace mlc_native
