// CudaModel is the decoder on a CUDA device: weights, pages, workspaces and steps. It samples on
// the device (step_queue); Forward, which copies the logits to the host, is for tests and tools.
//
// All memory is allocated while loading, in Allocate and in MakeStateMemory, so no step can run out
// of it. After a call has failed on the device, the device is lost for this model, and every later
// call reports it. One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "mlc_native/model.h"
#include "models/cuda/cuda_steps.h"
#include "models/cuda/device_kv.h"
#include "models/cuda/device_weights.h"
#include "support/error.h"

namespace mlc_native {

// The steps of a model of this library.
class CudaQueue : public StepQueue {
 public:
  // On the first of the model's devices, which a drafter shares.
  virtual CudaSteps& steps() = 0;
};

class CudaModel : public Model {
 public:
  using Weights = std::shared_ptr<const DeviceWeights>;

  // What a draft head takes of its target's weights where it lacks its own.
  struct Lent {
    Weights embeddings;
    Weights head;
  };

  // On device `device`, which is current and has the weights. As a `peer`, the model is one
  // device's part of a ShardedModel, which has its config and weights, and only the first one has
  // all logits. `adapter_targets`: what adapters may change; null: the model takes none, as a peer
  // and a draft head.
  CudaModel(ModelConfig config, Weights weights, kernels::KvFormat kv_format, int device, Lent lent,
            bool deterministic, Log log, Peer peer = {},
            std::shared_ptr<const AdapterTargets> adapter_targets = nullptr);
  ~CudaModel() override;

  const ModelMetadata& metadata() const override { return metadata_; }
  const ModelConfig& config() const { return config_; }
  const Weights& weights() const { return weights_; }
  void Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_logits) override;
  void AllocateRecurrent(int64_t num_slots) override { num_slots_ = num_slots; }
  LogitsView Forward(const ForwardBatch& batch) override;
  void CopyPages(std::span<const PageCopy> copies) override;
  std::unique_ptr<StateMemory> MakeStateMemory(int64_t num_rows, int64_t width) override;
  std::unique_ptr<TokenMemory> MakeTokenMemory(int32_t num_places) override;
  std::shared_ptr<const AdapterLoader> adapter_loader() const override;
  CudaQueue* step_queue() override { return &queue_; }
  // As a peer: what the first device has in its memory for tokens becomes that of this one.
  void ReceiveTokens(TokenMemory& memory);

 private:
  struct Memory;

  // Forwards to the steps that Allocate made.
  class Queue : public CudaQueue {
   public:
    explicit Queue(CudaModel& model) : model_(model) {}
    CudaSteps& steps() override { return model_.steps(); }
    void Forward(const ForwardBatch& batch) override { model_.steps().Forward(batch); }
    void Sample(std::span<const TokenRow> rows) override { model_.steps().Sample(rows); }
    void Collect(std::vector<DrawnToken>* tokens) override { model_.steps().Collect(tokens); }
    void SampleInto(std::span<const TokenRow> rows, std::span<const int32_t> places) override {
      model_.steps().SampleInto(rows, places);
    }
    void RunBehind(StepQueue& other) override {
      model_.steps().WaitFor(dynamic_cast<CudaQueue&>(other).steps());
    }

   private:
    CudaModel& model_;
  };

  void DescribeMetadata();
  // num_pages = 0 means as many as a sequence can use.
  StepInputs::Limits MakeLimits(int64_t num_pages, int64_t max_num_rows,
                                int64_t max_num_logits) const;
  // The device memory besides weights, pages and ropes.
  int64_t WorkspaceBytes(const StepInputs::Limits& limits) const;
  int64_t TableBytes() const;  // of positions and of ids
  InvalidConfig NoMemory(const std::string& what, int64_t bytes,
                         const kernels::cuda::OutOfDeviceMemory& error) const;
  CudaSteps& steps();

  const ModelConfig config_;
  const Weights weights_;
  const Lent lent_;                // to a draft head
  const CudaDecoderWeights view_;  // of both
  const kernels::KvFormat kv_format_;
  const bool deterministic_;  // ModelSource
  const std::shared_ptr<const AdapterTargets> adapter_targets_;
  int64_t num_slots_ = 0;  // of states
  const Log log_;
  const Peer peer_;
  ModelDevice device_;
  ModelMetadata metadata_;
  kernels::cuda::OwnedStream stream_{kernels::cuda::LaunchOrder::kDependent};
  Queue queue_{*this};
  std::unique_ptr<Memory> memory_;  // set by Allocate
  std::vector<float> logits_;       // result of Forward
};

// Loads the model of a folder, or the draft head for source.target. Throws LoadError,
// InvalidConfig.
std::unique_ptr<Model> LoadCudaModel(const ModelSource& source);

}  // namespace mlc_native
