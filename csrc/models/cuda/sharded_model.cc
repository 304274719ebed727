#include "models/cuda/sharded_model.h"

#include <algorithm>
#include <utility>

#include "support/error.h"

namespace mlc_native {

using kernels::cuda::DeviceError;
using kernels::cuda::DeviceMemory;
using kernels::cuda::OwnedStream;

// One rank's memory on each rank.
template <typename Memory>
class ShardedModel::Copies {
 public:
  // make(model of a rank) returns its memory.
  template <typename Make>
  Copies(ShardedModel& model, const Make& make) : model_(model), of_ranks_(model.ranks_.size()) {
    model_.threads_.Run([&](int64_t rank) {
      const auto i = static_cast<size_t>(rank);
      of_ranks_[i] = make(*model_.ranks_[i]);
    });
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  // On their threads, which have used their devices.
  ~Copies() {
    model_.threads_.Run([&](int64_t rank) { of_ranks_[static_cast<size_t>(rank)].reset(); });
  }

  Memory& of(int64_t rank) const { return *of_ranks_[static_cast<size_t>(rank)]; }
  template <typename Values>
  void Write(auto first, const Values& values) const {
    model_.Together([&](int64_t rank) { of(rank).Write(first, values); });
  }

 private:
  ShardedModel& model_;
  std::vector<std::unique_ptr<Memory>> of_ranks_;
};

class ShardedModel::States final : private Copies<StateMemory>, public StateMemory {
 public:
  States(ShardedModel& model, int64_t num_rows, int64_t width)
      : Copies(model, [&](CudaModel& rank) { return rank.MakeStateMemory(num_rows, width); }),
        StateMemory(Copies::of(0).data(), num_rows, width) {}

  using Copies::of;
  void Read(int64_t first_row, std::span<float> rows) const override {
    of(0).Read(first_row, rows);
  }
  void Write(int64_t first_row, std::span<const float> rows) override {
    Copies::Write(first_row, rows);
  }
};

class ShardedModel::Tokens final : private Copies<TokenMemory>, public TokenMemory {
 public:
  Tokens(ShardedModel& model, int32_t num_places)
      : Copies(model, [&](CudaModel& rank) { return rank.MakeTokenMemory(num_places); }),
        TokenMemory(Copies::of(0).data(), num_places),
        model_(model) {
    model_.tokens_ = this;
  }
  ~Tokens() override {
    if (model_.tokens_ == this) model_.tokens_ = nullptr;
  }

  using Copies::of;
  void Read(int32_t first_place, std::span<int32_t> values) const override {
    of(0).Read(first_place, values);
  }
  void Write(int32_t first_place, std::span<const int32_t> values) override {
    Copies::Write(first_place, values);
  }

 private:
  ShardedModel& model_;
};

ShardedModel::ShardedModel(ModelConfig config, std::vector<int> devices, const LoadRank& load,
                           LoadHead load_head)
    : config_(std::move(config)),
      load_head_(std::move(load_head)),
      devices_(std::move(devices)),
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
      const std::vector<int64_t> counts(ranks_.size(), count / peers_.size());
      peers_.Gather(rank, reinterpret_cast<float*>(memory.data()), counts, stream.get());
      peers_.SendTokens(rank, reinterpret_cast<int32_t*>(memory.data()), 1, stream.get());
      stream.Synchronize();
    }
  });
}

CudaModel::Weights ShardedModel::WholeHead() const {
  const CudaModel::Weights& own = first_rank().weights();
  return own->view().head.matrix.n == config_.vocab_size ? own : load_head_();
}

void ShardedModel::DescribeMetadata() {
  metadata_ = ranks_.front()->metadata();
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
        peers_.Abort(rank);  // now, since the others may be waiting on their devices
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

void ShardedModel::AllocateRecurrent(int64_t num_slots) {
  for (const std::unique_ptr<CudaModel>& rank : ranks_) rank->AllocateRecurrent(num_slots);
}

ForwardBatch ShardedModel::OfRank(ForwardBatch batch, int64_t rank) {
  if (batch.hidden.memory != nullptr) {
    batch.hidden.memory = &dynamic_cast<States&>(*batch.hidden.memory).of(rank);
  }
  if (batch.tokens != nullptr) batch.tokens = &dynamic_cast<Tokens&>(*batch.tokens).of(rank);
  return batch;
}

LogitsView ShardedModel::Forward(const ForwardBatch& batch) {
  std::vector<LogitsView> views(ranks_.size());
  Together([&](int64_t rank) {
    const auto i = static_cast<size_t>(rank);
    views[i] = ranks_[i]->Forward(OfRank(batch, rank));
  });
  return views.front();
}

void ShardedModel::CopyPages(std::span<const PageCopy> copies) {
  Together([&](int64_t rank) { ranks_[static_cast<size_t>(rank)]->CopyPages(copies); });
}

std::unique_ptr<StateMemory> ShardedModel::MakeStateMemory(int64_t num_rows, int64_t width) {
  return std::make_unique<States>(*this, num_rows, width);
}

std::unique_ptr<TokenMemory> ShardedModel::MakeTokenMemory(int32_t num_places) {
  return std::make_unique<Tokens>(*this, num_places);
}

void ShardedModel::Queue::Forward(const ForwardBatch& batch) {
  model_.Together([&](int64_t rank) {
    model_.ranks_[static_cast<size_t>(rank)]->step_queue()->Forward(OfRank(batch, rank));
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

// The other ranks wait for the first one's tokens.
void ShardedModel::Queue::RunBehind(StepQueue& other) {
  model_.Together([&](int64_t rank) {
    CudaModel& model = *model_.ranks_[static_cast<size_t>(rank)];
    if (rank == 0) model.step_queue()->RunBehind(other);
    if (model_.tokens_ != nullptr) model.ReceiveTokens(model_.tokens_->of(rank));
  });
}

}  // namespace mlc_native
