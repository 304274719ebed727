// HostSteps: the StepQueue of a model that computes on the host.
//
// Everything happens within Forward and Sample; Collect hands over what was drawn. So there is
// nothing to run ahead of: one step at a time, and token ids are never pending. Buffers are reused.
// Engine's thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/model.h"
#include "sampling/sampler.h"

namespace mlc_native {

class HostSteps : public StepQueue {
 public:
  explicit HostSteps(Model* model) : model_(model) {}

  void Forward(const ForwardBatch& batch) override;
  void Sample(std::span<const TokenRow> rows) override;
  void Collect(std::vector<DrawnToken>* tokens) override;

 private:
  bool SameRow(size_t a, size_t b) const {
    return b < logits_rows_.size() && logits_rows_[a] == logits_rows_[b];
  }
  void Draw(const TokenRow& row, std::span<float> logits, DrawnToken* drawn);

  Model* const model_;
  Sampler sampler_;
  LogitsView logits_;
  std::vector<int32_t> logits_rows_;  // of the batch
  std::vector<int32_t> distinct_;     // of those, each once: what the model is asked for
  std::vector<float> row_copy_;       // [vocab_size] of a row that is drawn from again
  std::vector<DrawnToken> drawn_;
};

}  // namespace mlc_native
