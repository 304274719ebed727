// MedusaHeads: the heads of Medusa as a draft head (model.h), on the CPU.
//
// Each guess of a draft has a head of its own, which reads the state of the target that its own
// head reads: some blocks x + silu(linear(x)), then a matrix of logits. The tokens of a batch are
// not read, and there are no keys and values: what is fed without logits costs nothing, and the
// state that goes on to the next guess is the target's.
//
// A row depends on nothing but its state, bit by bit. Used by the engine's thread only; its pool
// works inside Forward.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "arch/model_config.h"
#include "mlc_native/model.h"
#include "support/thread_pool.h"
#include "weights/cpu_weights.h"
#include "weights/tensor_storage.h"

namespace mlc_native {

class MedusaHeads final : public Model {
 public:
  // isa: what the weights were packed for.
  MedusaHeads(const ModelConfig& config, CpuDecoderWeights weights, const kernels::CpuKernels& isa,
              std::unique_ptr<ThreadPool> pool);

  const ModelMetadata& metadata() const override { return metadata_; }
  void Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_logits) override;
  LogitsView Forward(const ForwardBatch& batch) override;
  void CopyPages(std::span<const PageCopy> /*copies*/) override {}

 private:
  using Linear = CpuDecoderWeights::Linear;

  // Copies the states of the rows whose logits are wanted to states_.
  void TakeStates(const ForwardBatch& batch);
  void RunLinear(const Linear& linear, int64_t num_rows, std::vector<float>* out);

  const CpuDecoderWeights weights_;
  const std::unique_ptr<ThreadPool> pool_;
  const kernels::Cpu cpu_;
  const int64_t hidden_size_;
  ModelMetadata metadata_;

  // Set by Allocate.
  int64_t max_num_rows_ = 0;
  int64_t max_num_logits_ = 0;
  std::vector<float> states_;  // [logits rows, hidden]
  std::vector<float> own_;     // [logits rows, hidden]: what the last forward has read
  std::vector<float> block_;   // [logits rows, hidden]: what a linear of a block has given
  std::vector<float> logits_;  // [logits rows, vocab]
  TensorStorage workspace_;    // of the linears
};

}  // namespace mlc_native
