// Hidden states out of a forward, and the rows that a forward keeps behind its last layer.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "models/transformer_ops.h"
#include "support/check.h"

namespace mlc_native {
namespace {

// The index of a row that `rows` has.
size_t IndexOf(std::span<const int32_t> rows, int32_t row) {
  return static_cast<size_t>(std::ranges::lower_bound(rows, row) - rows.begin());
}

// Requires: to <= from.
template <typename Activations>
void MoveRow(const Activations& x, size_t from, size_t to) {
  if (from == to) return;
  const auto width = static_cast<size_t>(x.width);
  std::memcpy(x.data + to * width, x.data + from * width, width * sizeof(float));
}

}  // namespace

// The rows that matter behind the last keys and values.
void Transformer::ChooseLastRows(const ForwardBatch& batch) {
  const auto last = static_cast<int32_t>(last_writer_);
  const bool asked = std::ranges::any_of(batch.hidden.streams, [&](int32_t s) { return s > last; });
  last_rows_.clear();
  const std::span<const int32_t> hidden = asked ? batch.hidden.rows : std::span<const int32_t>();
  std::ranges::set_union(batch.logits_rows, hidden, std::back_inserter(last_rows_));
  if (!token_experts_.empty()) {
    last_ids_.clear();
    for (const int32_t row : last_rows_) {
      last_ids_.push_back(batch.token_ids[static_cast<size_t>(row)]);
    }
  }
  if (last_writer_ + 1 < config_.layers.size()) PlaceLastRows(batch);
}

// Rows that follow one another in a sequence are computed together.
void Transformer::PlaceLastRows(const ForwardBatch& batch) {
  last_positions_.clear();
  last_sequences_.clear();
  auto sequence = batch.sequences.begin();
  for (size_t i = 0; i < last_rows_.size(); ++i) {
    const int32_t row = last_rows_[i];
    const bool in_next = row >= sequence->first_row + sequence->num_tokens;
    while (row >= sequence->first_row + sequence->num_tokens) ++sequence;
    const int32_t position = positions_[static_cast<size_t>(row)];
    const int64_t last_key = LastKeyOf(batch, *sequence, row);
    last_positions_.push_back(position);
    if (i > 0 && !in_next && last_rows_[i - 1] + 1 == row &&
        last_sequences_.back().last_key == last_key) {
      ++last_sequences_.back().num_rows;
      continue;
    }
    last_sequences_.push_back({.row_begin = static_cast<int64_t>(i),
                               .num_rows = 1,
                               .first_position = position,
                               .block_table = sequence->block_table.data(),
                               .last_key = last_key});
  }
}

void Transformer::Ops::CopyStates(const Activations& x, std::span<const int32_t> rows,
                                  size_t stream, float scale) {
  const HiddenStates& asked = batch_.hidden;
  const auto hidden = static_cast<size_t>(config_.hidden_size);
  for (size_t i = 0; i < asked.streams.size(); ++i) {
    if (static_cast<size_t>(asked.streams[i]) != stream) continue;
    for (size_t j = 0; j < asked.rows.size(); ++j) {
      const auto row = static_cast<size_t>(asked.rows[j]);
      const size_t from = rows.empty() ? row : IndexOf(rows, asked.rows[j]);
      const float* state = x.data + from * static_cast<size_t>(x.width);
      float* out = asked.memory->data() + asked.places[j] * asked.memory->width();
      std::transform(state, state + hidden, out + i * hidden,
                     [scale](float value) { return value * scale; });
    }
  }
}

void Transformer::Ops::KeepOwnStates(const Activations& x, float scale) {
  const Activations& own = buffers_.own_states;
  for (size_t i = 0; i < batch_.logits_rows.size(); ++i) {
    const size_t row = IndexOf(model_.last_rows_, batch_.logits_rows[i]);
    const float* state = x.data + row * static_cast<size_t>(x.width);
    std::transform(state, state + own.width, own.data + i * static_cast<size_t>(own.width),
                   [scale](float value) { return value * scale; });
  }
}

void Transformer::Ops::CopyStream(size_t layer) {
  if (batch_.hidden.rows.empty()) return;
  MLC_CHECK(remembered_.empty()) << "the stream is copied before all that is remembered has run";
  const std::span<const int32_t> rows = model_.last_rows_;
  const Activations& read =
      config_.residual_streams ? Stream(config_.residual_streams->active) : buffers_.residual;
  CopyStates(read, has_last_rows_ ? rows : rows.first(0), layer, config_.residual_scale);
}

// All at once.
bool Transformer::Ops::KeepLastRows() {
  if (std::exchange(has_last_rows_, true)) return false;
  MLC_CHECK(remembered_.empty()) << "rows are moved before all that is remembered has run";
  const LayerConfig& last = config_.layers[model_.last_writer_];
  const Activations* const kept[] = {
      &buffers_.residual,
      last.attends() ? &buffers_.attention : nullptr,
      last.is_recurrent ? &buffers_.delta_output : nullptr,
      config_.parallel_blocks ? input_ : nullptr,
      config_.gates_attention() && last.attends() ? &buffers_.gated_qkv : nullptr,
      config_.layer_inputs ? &buffers_.layer_inputs : nullptr,
      config_.residual_streams || config_.hyper_connections ? &buffers_.streams : nullptr};
  for (const Activations* x : kept) {
    for (size_t i = 0; x != nullptr && i < model_.last_rows_.size(); ++i) {
      MoveRow(*x, static_cast<size_t>(model_.last_rows_[i]), i);
    }
  }
  model_.adapter_rows_.Keep(model_.last_rows_);
  num_rows_ = std::ssize(model_.last_rows_);
  return num_rows_ > 0;
}

bool Transformer::Ops::CopyLastStreams() {
  const std::span<const int32_t> rows = model_.last_rows_;
  const std::span<const int32_t> logits_rows = batch_.logits_rows;
  if (batch_.hidden.rows.empty() && !config_.draft_head) return true;
  const size_t num_layers = config_.layers.size();
  kernels::RunRows(model_.cpu_, remembered_.span());
  remembered_.Clear();
  const float norm_scale = 1.0f / config_.final_norm_scale;
  CopyStates(buffers_.residual, rows, num_layers, config_.residual_scale);
  CopyStates(*input_, rows, num_layers + 1, norm_scale);
  if (config_.draft_head) {
    const bool is_norm = static_cast<size_t>(config_.draft_head->info.own_stream) > num_layers;
    KeepOwnStates(is_norm ? *input_ : buffers_.residual,
                  is_norm ? norm_scale : config_.residual_scale);
  }
  for (size_t i = 0; i < logits_rows.size(); ++i) {
    MoveRow(*input_, IndexOf(rows, logits_rows[i]), i);
  }
  num_rows_ = std::ssize(logits_rows);
  return num_rows_ > 0;
}

}  // namespace mlc_native
