// StatePooling: from the hidden states of a step's rows to the embeddings of requests.
//
// A forward writes the states of the rows that StepBatch::pooled names to memory of the model's
// device, each step in flight to places of its own; a step that is collected adds them to its
// sequences, in the order of their positions, so that an embedding does not depend on the chunks of
// its prompt. The memory is made for the first such step; after that, steps allocate nothing here
// but the sum of a sequence. Owned by the StepPipeline; engine's thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mlc_native/model.h"
#include "step/step_batch.h"
#include "step/step_context.h"

namespace mlc_native {

class StatePooling {
 public:
  explicit StatePooling(StepContext& context) : context_(context) {}

  // What the forward of this batch, the step number `flight` in [0, kMaxInFlight), is asked for;
  // valid until the next call. Nothing if no row is pooled. Throws SequenceError where there is no
  // memory.
  HiddenStates Ask(const StepBatch& batch, int64_t flight);
  // Takes what a collected step has computed. Requests whose states are no finite numbers end with
  // an error. Throws what the model throws.
  void Collect(const StepBatch& batch, int64_t flight);

 private:
  int64_t max_rows() const;  // that a step pools
  void Reserve(const StepBatch::Pooled& pooled);
  void Add(const StepBatch::Pooled& pooled, const float* states);

  StepContext& context_;
  std::unique_ptr<StateMemory> memory_;  // null before the first step that pools
  std::vector<int32_t> rows_;
  std::vector<int32_t> places_;
  std::vector<int32_t> streams_;
  std::vector<float> states_;  // [max_rows, hidden_size] of the step that is collected
};

// The embedding of a sequence that is_embedded, or the logits of its classes, as its request asks
// for it.
std::vector<float> EmbeddingOf(const RequestStateEntry& entry);

}  // namespace mlc_native
