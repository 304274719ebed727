// ShardedModel is one decoder on several GPUs (tensor parallelism): the engine sees one Model.
//
// Each rank is a CudaModel of a shard (weights/weight_shard.h) on its own device, with its own
// stream, pages and workspace, and a thread that submits its work. All ranks get the same calls in
// the same order, so their pages have the same ids and their launches meet in the sums of Peers.
// The first rank has all logits, draws the tokens and gives them to the others. A drafter is a
// model on the first rank's device alone. Memory that it shares with this model has a copy on each
// rank: hidden states, which all ranks compute, since all of them have the residual; and tokens,
// where the ranks get the first one's before a step that follows guesses.
//
// A rank whose device fails makes the model fail for good: nothing waits for it any more
// (Peers::Abort), and every later call throws the same. Engine's thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mlc_native/model.h"
#include "models/cuda/cuda_model.h"
#include "models/cuda/peers.h"
#include "models/cuda/rank_threads.h"

namespace mlc_native {

class ShardedModel : public Model {
 public:
  // Makes the model of one rank, whose device is current, on that rank's thread.
  using LoadRank = std::function<std::unique_ptr<CudaModel>(const Peer& peer, int device)>;

  // Loads the whole head of the logits to the first device.
  using LoadHead = std::function<CudaModel::Weights()>;

  // Ranks 0, 1, ... on these devices, of a model that has this config as a whole. Throws what
  // `load` throws, InvalidConfig and DeviceError.
  ShardedModel(ModelConfig config, std::vector<int> devices, const LoadRank& load,
               LoadHead load_head);
  ~ShardedModel() override;

  const ModelConfig& config() const { return config_; }
  const CudaModel& first_rank() const { return *ranks_.front(); }
  // For a draft head on the first device, where the ranks have parts.
  CudaModel::Weights WholeHead() const;

  // Sizes in memory are those of the device that has the least to offer.
  const ModelMetadata& metadata() const override { return metadata_; }
  void Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_logits) override;
  void AllocateRecurrent(int64_t num_slots) override;
  LogitsView Forward(const ForwardBatch& batch) override;
  void CopyPages(std::span<const PageCopy> copies) override;
  std::unique_ptr<StateMemory> MakeStateMemory(int64_t num_rows, int64_t width) override;
  std::unique_ptr<TokenMemory> MakeTokenMemory(int32_t num_places) override;
  CudaQueue* step_queue() override { return &queue_; }

 private:
  template <typename Memory>
  class Copies;
  class States;
  class Tokens;

  class Queue : public CudaQueue {
   public:
    explicit Queue(ShardedModel& model) : model_(model) {}
    CudaSteps& steps() override { return model_.ranks_.front()->step_queue()->steps(); }
    void Forward(const ForwardBatch& batch) override;
    void Sample(std::span<const TokenRow> rows) override;
    void Collect(std::vector<DrawnToken>* tokens) override;
    void RunBehind(StepQueue& other) override;

   private:
    ShardedModel& model_;
  };

  // Runs work(rank) on all ranks. If it fails on one of them, the model is lost.
  void Together(const RankThreads::Work& work);
  // NCCL takes device memory when it is used for the first time, and then cannot be recorded.
  void Connect();
  void DescribeMetadata();
  // The batch with a rank's own copies of memory.
  static ForwardBatch OfRank(ForwardBatch batch, int64_t rank);

  const ModelConfig config_;
  const LoadHead load_head_;
  const std::vector<int> devices_;
  RankThreads threads_;
  Peers peers_;
  std::vector<std::unique_ptr<CudaModel>> ranks_;
  ModelMetadata metadata_;
  Queue queue_{*this};
  Tokens* tokens_ = nullptr;  // that the steps share with a drafter
  std::string lost_;          // the reason; empty: not lost
};

}  // namespace mlc_native
