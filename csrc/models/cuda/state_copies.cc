#include "models/cuda/state_copies.h"

#include <algorithm>
#include <utility>

#include "support/check.h"
#include "support/half.h"

namespace mlc_native {

int64_t StateCopies::StreamBytes() const {
  return max_rows_ * config_.hidden_size * static_cast<int64_t>(sizeof(float));
}

bool StateCopies::Ask(const ForwardBatch& batch, std::span<const int32_t> packed_rows) {
  const HiddenStates& asked = batch.hidden;
  next_.streams = {};
  if (asked.rows.empty()) return false;
  MLC_CHECK(step_ < 0) << "hidden states of step " << step_ << " are not collected";
  const bool is_new = Reserve(asked.streams);
  next_.rows.clear();
  for (const int32_t row : asked.rows) {
    next_.rows.push_back(packed_rows[static_cast<size_t>(row)]);
  }
  next_.streams = {.streams = streams_,
                   .of_logits_rows = std::ranges::equal(asked.rows, batch.logits_rows),
                   .out = memory_.data(),
                   .stream_bytes = StreamBytes()};
  next_.out = asked.out;
  return is_new;
}

bool StateCopies::Reserve(std::span<const int32_t> streams) {
  if (std::ranges::equal(streams, streams_)) return false;
  const size_t bytes = streams.size() * static_cast<size_t>(StreamBytes());
  if (memory_.size() < bytes) memory_ = kernels::cuda::PinnedMemory(bytes);
  streams_.assign(streams.begin(), streams.end());
  return true;
}

void StateCopies::Submit(int64_t step) {
  if (next_.streams.streams.empty()) return;
  std::swap(submitted_, next_);
  next_.streams = {};
  step_ = step;
}

void StateCopies::Collect(int64_t step) {
  if (step_ != step) return;
  step_ = -1;
  Write(submitted_);
}

void StateCopies::Write(const Asked& asked) const {
  const auto hidden = static_cast<size_t>(config_.hidden_size);
  const auto num_layers = std::ssize(config_.layers);
  const std::span<const int32_t> streams = asked.streams.streams;
  for (size_t i = 0; i < streams.size(); ++i) {
    const bool is_norm = streams[i] == num_layers + 1;
    const bool is_packed = streams[i] < num_layers || !asked.streams.of_logits_rows;
    const DType dtype = is_norm ? dtype_ : DType::kFloat32;
    const float scale = is_norm ? 1.0f / config_.final_norm_scale : config_.residual_scale;
    const std::byte* stream = asked.streams.PlaceOf(i);
    for (size_t j = 0; j < asked.rows.size(); ++j) {
      const size_t row = is_packed ? static_cast<size_t>(asked.rows[j]) : j;
      float* out = asked.out.data() + (j * streams.size() + i) * hidden;
      for (size_t k = 0; k < hidden; ++k) {
        out[k] = scale * LoadElement(dtype, stream, static_cast<int64_t>(row * hidden + k));
      }
    }
  }
}

}  // namespace mlc_native
