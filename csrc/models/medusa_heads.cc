#include "models/medusa_heads.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "models/batch_check.h"
#include "support/check.h"

namespace mlc_native {
namespace {

float Silu(float x) { return x / (1.0f + std::exp(-x)); }

}  // namespace

MedusaHeads::MedusaHeads(const ModelConfig& config, CpuDecoderWeights weights,
                         const kernels::CpuKernels& isa, std::unique_ptr<ThreadPool> pool)
    : weights_(std::move(weights)),
      pool_(std::move(pool)),
      cpu_{&isa, pool_.get()},
      hidden_size_(config.hidden_size) {
  metadata_.vocab_size = config.vocab_size;
  metadata_.dtype = weights_.dtype;
  metadata_.weight_bytes = static_cast<int64_t>(weights_.memory.size);
  metadata_.mapped_weight_bytes = weights_.memory.mapped ? metadata_.weight_bytes : 0;
  const auto linear_bytes = static_cast<int64_t>(kernels::LinearInputBytes(1, hidden_size_));
  metadata_.workspace_bytes_per_sequence =
      (config.vocab_size + 3 * hidden_size_) * static_cast<int64_t>(sizeof(float)) + linear_bytes;
  metadata_.hidden_size = hidden_size_;
  metadata_.draft_head = config.draft_head->info;
  metadata_.description = weights_.description;
}

void MedusaHeads::Allocate(int64_t /*num_pages*/, int64_t max_num_rows, int64_t max_num_logits) {
  MLC_CHECK(max_num_rows > 0 && max_num_logits > 0)
      << max_num_rows << " rows, " << max_num_logits << " logits rows";
  max_num_rows_ = max_num_rows;
  max_num_logits_ = max_num_logits;
  const auto rows = static_cast<size_t>(max_num_logits);
  states_.resize(rows * static_cast<size_t>(hidden_size_));
  own_.resize(states_.size());
  block_.resize(states_.size());
  logits_.resize(rows * static_cast<size_t>(metadata_.vocab_size));
  workspace_ = TensorStorage(kernels::LinearWorkspaceBytes(max_num_logits, hidden_size_),
                             "max_num_sequence");
}

LogitsView MedusaHeads::Forward(const ForwardBatch& batch) {
  CheckBatch(batch, {.max_num_rows = max_num_rows_,
                     .max_num_logits = max_num_logits_,
                     .num_positions = std::numeric_limits<int64_t>::max(),
                     .num_streams = 0,
                     .hidden_size = hidden_size_,
                     .draft_input_size = hidden_size_});
  const int64_t num_rows = std::ssize(batch.logits_rows);
  const auto guess = static_cast<size_t>(batch.draft.num_guessed);
  MLC_CHECK(guess < weights_.medusa.size()) << guess << " of " << weights_.medusa.size();
  TakeStates(batch);
  const CpuDecoderWeights::MedusaHead& head = weights_.medusa[guess];
  const auto size = static_cast<size_t>(num_rows * hidden_size_);
  for (const Linear& block : head.blocks) {
    if (num_rows == 0) break;
    RunLinear(block, num_rows, &block_);
    std::transform(block_.begin(), block_.begin() + static_cast<std::ptrdiff_t>(size),
                   states_.begin(), states_.begin(), [](float y, float x) { return x + Silu(y); });
  }
  if (num_rows > 0) {
    RunLinear(head.head.matrix.data != nullptr ? head.head : weights_.head, num_rows, &logits_);
  }
  return {.data = logits_.data(), .num_rows = num_rows, .vocab_size = metadata_.vocab_size};
}

void MedusaHeads::TakeStates(const ForwardBatch& batch) {
  const DraftInput& draft = batch.draft;
  const bool of_target = draft.target != nullptr;
  const float* const given = of_target ? draft.target->data() : own_.data();
  const std::span<const int32_t> places = of_target ? draft.places : draft.own_rows;
  float* out = states_.data();
  for (const int32_t row : batch.logits_rows) {
    out = std::copy_n(given + places[static_cast<size_t>(row)] * hidden_size_, hidden_size_, out);
  }
  std::copy(states_.data(), out, own_.begin());
}

void MedusaHeads::RunLinear(const Linear& linear, int64_t num_rows, std::vector<float>* out) {
  kernels::Linear(cpu_, linear.matrix,
                  {.x = states_.data(),
                   .ldx = hidden_size_,
                   .m = num_rows,
                   .bias = linear.bias,
                   .y = out->data(),
                   .ldy = linear.matrix.n,
                   .workspace = workspace_.data()});
}

}  // namespace mlc_native
