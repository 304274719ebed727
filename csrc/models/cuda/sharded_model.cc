#include "models/cuda/sharded_model.h"

#include <algorithm>
#include <utility>

#include "support/error.h"

namespace mlc_native {

using kernels::cuda::DeviceError;
using kernels::cuda::DeviceMemory;
using kernels::cuda::OwnedStream;

ShardedModel::ShardedModel(std::vector<int> devices, const LoadRank& load)
    : devices_(std::move(devices)),
      threads_(std::ssize(devices_)),
      peers_(devices_),
      ranks_(devices_.size()) {
  Connect();
  threads_.Run([&](int64_t rank) {
    const auto i = static_cast<size_t>(rank);
    kernels::cuda::UseDevice(devices_[i]);
    ranks_[i] = load({.peers = &peers_, .rank = rank}, devices_[i]);
  });
  DescribeMetadata();
}

// On their threads, which have used their devices.
ShardedModel::~ShardedModel() {
  threads_.Run([&](int64_t rank) { ranks_[static_cast<size_t>(rank)].reset(); });
}

// Few and many numbers, for which Peers and NCCL have different ways.
void ShardedModel::Connect() {
  Together([&](int64_t rank) {
    kernels::cuda::UseDevice(devices_[static_cast<size_t>(rank)]);
    const OwnedStream stream;
    for (const int64_t count : {int64_t{1} << 8, int64_t{1} << 20}) {
      const int64_t num_parts = Peers::NumParts(peers_.size(), count);
      const DeviceMemory memory(static_cast<size_t>(count + num_parts) * sizeof(float));
      SetToZero(memory.data(), memory.size(), stream.get());
      peers_.Sum(rank, memory.data(), count, DType::kFloat32,
                 reinterpret_cast<float*>(memory.data()) + count, stream.get());
      peers_.SendTokens(rank, reinterpret_cast<int32_t*>(memory.data()), 1, stream.get());
      stream.Synchronize();
    }
  });
}

void ShardedModel::DescribeMetadata() {
  metadata_ = ranks_.front()->metadata();
  metadata_.hidden_size = 0;  // whose rows are asked for by draft heads alone
  metadata_.num_shards = std::ssize(ranks_);
  metadata_.description.compute =
      std::to_string(ranks_.size()) + " x " + metadata_.description.compute;
  for (size_t i = 1; i < ranks_.size(); ++i) {
    const ModelMetadata& other = ranks_[i]->metadata();
    metadata_.weight_bytes += other.weight_bytes;
    metadata_.free_memory_bytes = std::min(*metadata_.free_memory_bytes, *other.free_memory_bytes);
  }
}

void ShardedModel::Together(const RankThreads::Work& work) {
  if (!lost_.empty()) throw DeviceError(lost_);
  try {
    threads_.Run([&](int64_t rank) {
      try {
        work(rank);
      } catch (...) {
        peers_.Abort();  // now, since the others may be waiting on their devices
        throw;
      }
    });
  } catch (const std::exception& error) {
    lost_ = error.what();
    throw;
  }
}

void ShardedModel::Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_logits) {
  if (!lost_.empty()) throw DeviceError(lost_);
  threads_.Run([&](int64_t rank) {
    ranks_[static_cast<size_t>(rank)]->Allocate(num_pages, max_num_rows, max_num_logits);
  });
}

LogitsView ShardedModel::Forward(const ForwardBatch& batch) {
  std::vector<LogitsView> views(ranks_.size());
  Together([&](int64_t rank) {
    const auto i = static_cast<size_t>(rank);
    views[i] = ranks_[i]->Forward(batch);
  });
  return views.front();
}

void ShardedModel::CopyPages(std::span<const PageCopy> copies) {
  Together([&](int64_t rank) { ranks_[static_cast<size_t>(rank)]->CopyPages(copies); });
}

std::unique_ptr<StateMemory> ShardedModel::MakeStateMemory(int64_t, int64_t) {
  throw InvalidConfig("speculative_mode",
                      "\"speculative_mode\": a draft head needs a model on one GPU, and "
                      "\"tensor_parallel_shards\" is " +
                          std::to_string(ranks_.size()));
}

void ShardedModel::Queue::Forward(const ForwardBatch& batch) {
  model_.Together([&](int64_t rank) {
    model_.ranks_[static_cast<size_t>(rank)]->step_queue()->Forward(batch);
  });
}

void ShardedModel::Queue::Sample(std::span<const TokenRow> rows) {
  model_.Together(
      [&](int64_t rank) { model_.ranks_[static_cast<size_t>(rank)]->step_queue()->Sample(rows); });
}

// The other ranks wait for their devices, too, so that one that fails is noticed.
void ShardedModel::Queue::Collect(std::vector<DrawnToken>* tokens) {
  model_.Together([&](int64_t rank) {
    std::vector<DrawnToken> same;
    model_.ranks_[static_cast<size_t>(rank)]->step_queue()->Collect(rank == 0 ? tokens : &same);
  });
}

}  // namespace mlc_native
