// CudaDecoder: hidden states out of a forward, and the rows that it keeps behind its last layer.
#include <algorithm>

#include "models/cuda/decoder_ops.h"

namespace mlc_native {

using kernels::cuda::GatherRows;
using kernels::cuda::MoveRows;

void CudaDecoder::Ops::CopyRows(const void* rows, DType dtype, float scale, size_t stream) const {
  const CudaStreams& asked = batch_.streams;
  const int64_t hidden = config_.hidden_size;
  for (size_t i = 0; i < asked.streams.size(); ++i) {
    if (static_cast<size_t>(asked.streams[i]) != stream) continue;
    MoveRows({.from_dtype = dtype,
              .from = rows,
              .ld_from = hidden,
              .to = asked.out + static_cast<int64_t>(i) * hidden,
              .ld_to = static_cast<int64_t>(asked.streams.size()) * hidden,
              .to_rows = asked.places,
              .to_index = last_rows_ == LastRows::kOfLogits ? batch_.logits_rows : nullptr,
              .scale = scale,
              .m = num_rows_,
              .k = hidden},
             stream_);
  }
}

void CudaDecoder::Ops::CopyStream(size_t layer) {
  const bool has_streams = config_.residual_streams.has_value();
  CopyRows(has_streams ? Stream(streams_.active) : residual_, DType::kFloat32,
           config_.residual_scale, layer);
}

void CudaDecoder::Ops::KeepOwnStates() const {
  const int64_t hidden = config_.hidden_size;
  const auto num_layers = static_cast<int32_t>(config_.layers.size());
  const bool is_norm = config_.draft_head->info.own_stream > num_layers;
  MoveRows({.from_dtype = is_norm ? weights_.dtype : DType::kFloat32,
            .from = is_norm ? input_ : residual_,
            .ld_from = hidden,
            .to = buffers_.own_states,
            .ld_to = hidden,
            .scale = is_norm ? 1.0f / config_.final_norm_scale : config_.residual_scale,
            .m = num_rows_,
            .k = hidden},
           stream_);
}

// The rows of the logits come first, as if no states were asked for, because larger products have
// other bits (cuBLAS). Then come all rows, if states of others are wanted behind the last layer.
bool CudaDecoder::Ops::KeepLastRows() {
  const auto last = static_cast<int32_t>(decoder_.last_writer_);
  const auto is_last = [&](int32_t stream) { return stream > last; };
  const bool wants_all = batch_.logits_rows != nullptr && !batch_.streams.of_logits_rows &&
                         std::ranges::any_of(batch_.streams.streams, is_last);
  const LastRows before = last_rows_;
  if (before == LastRows::kNone) {
    last_rows_ = LastRows::kOfLogits;
    if (KeepLogitsRows()) return true;
  }
  if (before == LastRows::kAll || !wants_all) return false;
  last_rows_ = LastRows::kAll;
  KeepAllRows();
  return true;
}

void CudaDecoder::Ops::KeepAllRows() {
  num_rows_ = batch_.num_rows;
  fixed_rows_ = batch_.num_decode_rows;
  rows_ = RowsOf(batch_);
  std::ranges::fill(listed_, kNotListed);
  residual_ = buffers_.residual;
  attention_ = buffers_.attention;
  state_output_ = buffers_.state_output;
  input_ = buffers_.hidden;
  streams_ = StreamsAt(buffers_.streams, decoder_.limits_.max_rows * config_.hidden_size);
}

bool CudaDecoder::Ops::KeepLogitsRows() {
  num_rows_ = fixed_rows_ = batch_.num_logits;
  if (num_rows_ == 0) return false;
  if (batch_.logits_rows == nullptr) return true;
  PickRows();
  GatherRows(buffers_.residual, batch_.logits_rows, num_rows_,
             config_.hidden_size * static_cast<int64_t>(sizeof(float)), buffers_.kept_residual,
             stream_);
  residual_ = buffers_.kept_residual;
  if (config_.residual_streams) KeepStreams();
  const auto keep = [&](const void* rows, int64_t width, void* kept) {
    GatherRows(rows, batch_.logits_rows, num_rows_,
               width * static_cast<int64_t>(DTypeSize(weights_.dtype)), kept, stream_);
    return kept;
  };
  const LayerConfig& layer = config_.layers[decoder_.last_writer_];
  attention_ = state_output_ =
      keep(buffers_.attention, AttentionRow(config_, layer), buffers_.kept_attention);
  if (layer.attends_beside) {
    state_output_ =
        keep(buffers_.state_output, config_.recurrent_outputs_size(), buffers_.kept_state_output);
  }
  if (config_.parallel_blocks) {
    input_ = keep(buffers_.hidden, config_.hidden_size, buffers_.kept_input);
  }
  return true;
}

// Layers behind the last keys and values may attend with them; nothing else is asked of rows there.
void CudaDecoder::Ops::PickRows() {
  rows_ = {};
  if (!KeepsRowNumbers(config_)) return;
  const RowNumbers& kept = buffers_.kept_rows;
  kernels::cuda::PickRows({.rows = batch_.logits_rows,
                           .m = num_rows_,
                           .positions = batch_.positions,
                           .lengths = batch_.lengths,
                           .tables = batch_.tables,
                           .slots = batch_.slots,
                           .to_positions = kept.positions,
                           .to_lengths = kept.lengths,
                           .to_tables = kept.tables,
                           .to_slots = kept.slots},
                          stream_);
  // No family with such layers has places of three numbers.
  rows_ = {kept.positions, nullptr, kept.lengths, kept.tables, kept.slots};
  std::ranges::fill(listed_, kNotListed);
}

bool CudaDecoder::Ops::CopyLastStreams() {
  const bool has_asked_rows = last_rows_ == LastRows::kAll || batch_.logits_rows == nullptr ||
                              batch_.streams.of_logits_rows;
  if (has_asked_rows) {
    const size_t num_layers = config_.layers.size();
    CopyRows(residual_, DType::kFloat32, config_.residual_scale, num_layers);
    CopyRows(input_, weights_.dtype, 1.0f / config_.final_norm_scale, num_layers + 1);
  }
  if (config_.draft_head && last_rows_ == LastRows::kOfLogits) KeepOwnStates();
  return last_rows_ == LastRows::kOfLogits;
}

}  // namespace mlc_native
