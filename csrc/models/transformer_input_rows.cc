// Rows in place of tokens, on the CPU: what they are, where rope puts them and what they see.
#include <algorithm>
#include <functional>
#include <numeric>

#include "models/row_places.h"
#include "models/transformer_ops.h"
#include "support/check.h"

namespace mlc_native {

void Transformer::AddSequences(const ForwardBatch& batch, const SequenceSlice& s) {
  ForEachPart(batch, s, config_.sight, [&](const RowPart& part) {
    sequences_.push_back({.row_begin = part.first_row,
                          .num_rows = part.num_rows,
                          .first_position = s.position + part.first_row - s.first_row,
                          .block_table = s.block_table.data(),
                          .last_key = part.last_key});
  });
}

// What a row sees beyond its own position.
int64_t Transformer::LastKeyOf(const ForwardBatch& batch, const SequenceSlice& s,
                               int32_t row) const {
  int64_t last_key = 0;
  ForEachPart(batch, s, config_.sight, [&](const RowPart& part) {
    if (part.first_row <= row && row < part.first_row + part.num_rows) last_key = part.last_key;
  });
  return last_key;
}

void Transformer::PlaceRopes(const ForwardBatch& batch) {
  has_row_ropes_ = HasRowPlaces(batch);
  if (!has_row_ropes_) return;
  MLC_CHECK(metadata_.row_positions);
  row_positions_.clear();
  for (const SequenceSlice& s : batch.sequences) {
    ForEachRowPlace(s, num_positions_,
                    [&](const RowPosition& place) { row_positions_.push_back(place); });
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
