// StateCopies brings hidden states of a forward to the host.
//
// The decoder copies whole streams, as they lie on the device, to pinned memory: one copy for each
// stream, with addresses that a graph can replay, and without memory on the device. The rows that
// were asked for are taken out of it when the step is collected. One step at a time. Engine's
// thread only.
#pragma once

#include <span>
#include <vector>

#include "arch/model_config.h"
#include "models/cuda/decoder.h"

namespace mlc_native {

class StateCopies {
 public:
  // For forwards of at most max_rows rows.
  StateCopies(const ModelConfig& config, DType dtype, int64_t max_rows)
      : config_(config), dtype_(dtype), max_rows_(max_rows) {}

  // Takes what the next forward is asked for; row i of the batch is row packed_rows[i] on the
  // device. True if the decoder copies other streams, or to other places, than before.
  bool Ask(const ForwardBatch& batch, std::span<const int32_t> packed_rows);
  // Where the decoder copies them.
  const CudaStreams& streams() const { return next_.streams; }

  // The forward belongs to step number `step`.
  void Submit(int64_t step);
  // Writes the states to the caller's memory if the step was asked for some. Requires: it has run.
  void Collect(int64_t step);
  // The same for the last forward.
  void Write() const { Write(next_); }

 private:
  struct Asked {
    CudaStreams streams;
    std::vector<int32_t> rows{};  // on the device
    std::span<float> out{};
  };

  bool Reserve(std::span<const int32_t> streams);
  void Write(const Asked& asked) const;
  int64_t StreamBytes() const;

  const ModelConfig& config_;
  const DType dtype_;
  const int64_t max_rows_;
  kernels::cuda::PinnedMemory memory_;  // [streams_, max_rows, hidden_size] floats
  std::vector<int32_t> streams_;        // that there is memory for
  Asked next_;
  Asked submitted_;
  int64_t step_ = -1;  // of submitted_; negative: none
};

}  // namespace mlc_native
