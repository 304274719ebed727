#include "models/cuda/peers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/cuda/rows.h"
#include "support/check.h"
#include "support/error.h"
#include "support/library_thread.h"

namespace mlc_native {
namespace {

using kernels::cuda::DeviceError;
using kernels::cuda::Stream;

// Elements that a rank receives at most for a sum of whole parts. That takes one exchange; pieces
// take two, of less. The exchange that is spared is worth some 4 MB between GPUs (an estimate).
constexpr int64_t kMostInWhole = int64_t{1} << 21;
constexpr int64_t kVector = 8;  // elements of which pieces are multiples

constexpr std::chrono::seconds kPatience{2};       // with a call that should return at once
constexpr std::chrono::seconds kLongPatience{30};  // with what may take a while

int NcclType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      break;
    case DType::kBFloat16:
      return nccl::kBFloat16;
    case DType::kFloat16:
      return nccl::kFloat16;
  }
  return nccl::kFloat32;
}

InvalidConfig Unusable(size_t num_devices, const std::string& reason) {
  return {"tensor_parallel_shards",
          "\"tensor_parallel_shards\" = " + std::to_string(num_devices) +
              " needs NVIDIA's NCCL 2: " + reason +
              ". Install it with \"pip install nvidia-nccl-cu13\" (or -cu12), or name the file in "
              "MLC_NATIVE_NCCL_LIB"};
}

DeviceError OtherFailed(const char* what) {
  return DeviceError(std::string("NCCL: another GPU has failed: ") + what);
}

}  // namespace

// The first device is made current before others are, since what is current is made so again, and a
// device that is made current is initialized.
Peers::Peers(const std::vector<int>& devices) {
  kernels::cuda::UseDevice(devices.front());
  const bool is_gpu = !kernels::cuda::GetDeviceInfo(devices.front()).is_emulated;
  std::string reason;
  if (!nccl::Open(is_gpu, &api_, &reason)) throw Unusable(devices.size(), reason);
  std::vector<nccl::Comm> comms(devices.size());
  const int status = api_.init_all(comms.data(), static_cast<int>(devices.size()), devices.data());
  if (status != nccl::kSuccess) {
    throw Unusable(devices.size(),
                   std::string("it cannot connect the GPUs: ") + api_.error_string(status));
  }
  for (const nccl::Comm comm : comms) {
    ranks_.push_back(std::make_shared<Rank>());
    ranks_.back()->comm = comm;
  }
}

// A device that is lost might keep NCCL waiting.
Peers::~Peers() {
  if (!is_aborted_) {
    for (const auto& rank : ranks_) api_.destroy(rank->comm);
  } else if (aborter_.joinable()) {
    const bool is_done = aborted_.wait_for(kLongPatience) == std::future_status::ready;
    is_done ? aborter_.join() : aborter_.detach();
  }
}

template <typename Call>
void Peers::Run(int64_t rank, const char* what, const Call& call) {
  Rank& own = *ranks_[static_cast<size_t>(rank)];
  const std::lock_guard lock(own.mutex);
  if (is_aborted_) throw OtherFailed(what);
  const int status = call(own.comm);
  if (status != nccl::kSuccess) {
    throw DeviceError(std::string("NCCL: ") + what + ": " + api_.error_string(status));
  }
}

int64_t Peers::NumParts(int64_t size, int64_t most) {
  if (size <= 2) return 0;
  return std::min(kMostInWhole, size * most) + most + size * kVector;  // pieces are whole vectors
}

template <typename Sent, typename Received>
void Peers::Exchange(int64_t rank, DType dtype, const Sent& sent, const Received& received,
                     Stream stream) {
  const int type = NcclType(dtype);
  Run(rank, "an exchange between GPUs", [&](nccl::Comm comm) {
    int status = api_.group_start();
    for (int64_t other = 0; other < size() && status == nccl::kSuccess; ++other) {
      if (other == rank) continue;
      const auto peer = static_cast<int>(other);
      const Piece out = sent(other);
      const Piece in = received(other);
      if (out.count > 0) {
        status =
            api_.send(out.data, static_cast<size_t>(out.count), type, peer, comm, stream.handle());
      }
      if (in.count > 0 && status == nccl::kSuccess) {
        status =
            api_.receive(in.data, static_cast<size_t>(in.count), type, peer, comm, stream.handle());
      }
    }
    const int ended = api_.group_end();
    return status == nccl::kSuccess ? ended : status;
  });
}

void Peers::SumInOrder(int64_t rank, void* data, int64_t count, DType dtype, void* parts,
                       Stream stream) {
  MLC_CHECK(count % kVector == 0 && parts != nullptr) << count;
  const auto at = [&](void* first, int64_t element) -> void* {
    return static_cast<std::byte*>(first) + element * static_cast<int64_t>(DTypeSize(dtype));
  };
  const bool in_whole = count * size() <= kMostInWhole;
  const int64_t step = in_whole ? count : (count / kVector + size() - 1) / size() * kVector;
  const auto piece = [&](int64_t of) -> Piece {  // that rank `of` adds up
    if (in_whole) return {data, count};
    const int64_t first = std::min(of * step, count);
    return {at(data, first), std::min(step, count - first)};
  };
  const Piece own = piece(rank);
  Exchange(
      rank, dtype, piece,
      [&](int64_t other) -> Piece { return {at(parts, other * step), own.count}; }, stream);
  kernels::cuda::AddParts({.dtype = dtype,
                           .parts = parts,
                           .stride = step,
                           .num_parts = static_cast<int>(size()),
                           .own = static_cast<int>(rank),
                           .sum = own.data,
                           .count = own.count},
                          stream);
  if (!in_whole) Exchange(rank, dtype, [&](int64_t) { return own; }, piece, stream);
}

void Peers::Sum(int64_t rank, void* data, int64_t count, DType dtype, void* parts, Stream stream) {
  if (size() > 2) return SumInOrder(rank, data, count, dtype, parts, stream);
  Run(rank, "a sum over GPUs", [&](nccl::Comm comm) {
    return api_.all_reduce(data, data, static_cast<size_t>(count), NcclType(dtype), nccl::kSum,
                           comm, stream.handle());
  });
}

void Peers::Gather(int64_t rank, float* data, std::span<const int64_t> counts, Stream stream) {
  const auto count = [&](int64_t of) { return counts[static_cast<size_t>(of)]; };
  float* next = data;
  Exchange(
      rank, DType::kFloat32,
      [&](int64_t other) { return rank != 0 && other == 0 ? Piece{data, count(rank)} : Piece{}; },
      [&](int64_t other) {  // of the ranks in their order
        return rank == 0 ? Piece{std::exchange(next, next + count(other)), count(other)} : Piece{};
      },
      stream);
}

void Peers::SendTokens(int64_t rank, int32_t* tokens, int64_t count, Stream stream) {
  Run(rank, "tokens for all GPUs", [&](nccl::Comm comm) {
    return api_.broadcast(tokens, tokens, static_cast<size_t>(count), nccl::kInt32, 0, comm,
                          stream.handle());
  });
}

bool Peers::IsTrueOfAll(bool is_true) {
  std::unique_lock lock(round_mutex_);
  const int64_t round = num_rounds_;
  is_true_so_far_ = is_true_so_far_ && is_true;
  if (++num_here_ == size()) {
    was_true_ = std::exchange(is_true_so_far_, true);
    num_here_ = 0;
    ++num_rounds_;
    round_ended_.notify_all();
    return was_true_;
  }
  const auto is_over = [&] { return num_rounds_ > round || is_aborted_; };
  round_ended_.wait_for(lock, kLongPatience, is_over);
  if (num_rounds_ == round) throw OtherFailed("it does not come to the same step");
  return was_true_;
}

// On a thread of its own: NCCL's last abort frees what the ranks of a process share, and waits
// until no graph has an operation of theirs, while the ranks still have their graphs.
void Peers::Abort(int64_t rank) {
  {
    const std::lock_guard lock(round_mutex_);
    if (is_aborted_.exchange(true)) return;
  }
  round_ended_.notify_all();
  Ranks ranks = ranks_;
  std::swap(ranks[static_cast<size_t>(rank)], ranks.back());
  std::promise<void> done;
  aborted_ = done.get_future();
  aborter_ = StartThread("mlcn-abort", [api = api_, ranks, done = std::move(done)]() mutable {
    AbortInOrder(api, ranks);
    done.set_value();
  });
}

// The last rank is in no call. A call of another one that NCCL does not return from does so when
// its rank is aborted, and what it uses is freed behind that.
void Peers::AbortInOrder(const nccl::Api& api, const Ranks& ranks) {
  const auto others = std::span(ranks).first(ranks.size() - 1);
  for (const auto& rank : others) {
    const std::unique_lock lock(rank->mutex, kPatience);
    api.abort(rank->comm);
  }
  for (const auto& rank : others) const std::unique_lock lock(rank->mutex, kLongPatience);
  api.abort(ranks.back()->comm);
}

}  // namespace mlc_native
