// HostSteps: the StepQueue of a model that computes on the host.
//
// Everything happens within Forward and Sample; Collect hands over what was drawn. So there is
// nothing to run ahead of: one step at a time, and token ids are never pending. Buffers are reused.
// Engine's thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mlc_native/detail/export.h"
#include "mlc_native/model.h"
#include "sampling/sampler.h"

namespace mlc_native {

class MLC_NATIVE_PRIVATE_API HostSteps : public StepQueue {
 public:
  explicit HostSteps(Model* model) : model_(model) {}

  void Forward(const ForwardBatch& batch) override;
  void Sample(std::span<const TokenRow> rows) override;
  void Collect(std::vector<DrawnToken>* tokens) override;

 private:
  std::span<const int32_t> Merge(std::span<const int32_t> rows);
  void Draw(const TokenRow& row, std::span<float> logits, DrawnToken* drawn);

  Model* const model_;
  Sampler sampler_;
  LogitsView logits_;
  size_t num_rows_ = 0;            // of the batch's logits_rows
  std::vector<int32_t> distinct_;  // rows that the model is asked for when some are wanted twice
  std::vector<int> num_draws_;     // of each of those; empty: one each
  std::vector<float> row_copy_;    // [vocab_size] of a row that is drawn from again
  std::vector<DrawnToken> drawn_;  // of the step that is not collected
  bool has_step_ = false;
};

}  // namespace mlc_native
