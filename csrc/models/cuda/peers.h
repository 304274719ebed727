// Peers are the GPUs that compute one model together, and what they tell each other: sums and
// tokens, through NCCL. Each GPU has a rank, and a thread that submits its work.
//
// A sum of two numbers has no order, so NCCL adds those of two GPUs. It would choose the order of
// more numbers by their count, and rows would have other bits in other batches. So more GPUs
// exchange their parts, and add them in the order of the ranks: few elements whole, each GPU all of
// them; many elements in as many pieces as there are GPUs, each GPU one, which the others then get.
// An element's bits are the same either way.
//
// Every rank calls the same operations in the same order, each on a stream of its own device, which
// is current. They return at once; on the device they wait for the other ranks, so a rank that
// stops keeps all of them waiting, until Abort. Each rank's thread only. Graphs with recorded
// operations are destroyed before the Peers.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "kernels/cuda/runtime.h"
#include "mlc_native/detail/dtype.h"
#include "models/cuda/nccl_api.h"

namespace mlc_native {

class Peers {
 public:
  // Ranks 0, 1, ... on these devices, of which the first becomes current. Throws InvalidConfig with
  // the field "tensor_parallel_shards" if there is no NCCL or it cannot be set up.
  explicit Peers(const std::vector<int>& devices);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  int64_t size() const { return static_cast<int64_t>(ranks_.size()); }

  // Elements of memory in which a rank of `size` gets the others' parts of sums of up to `most`.
  static int64_t NumParts(int64_t size, int64_t most);

  // data[count] = its sum over all ranks; `count` is a multiple of 8. `parts`: memory for
  // NumParts(size(), count) elements; null: there are none. Can be recorded in a graph.
  void Sum(int64_t rank, void* data, int64_t count, DType dtype, void* parts,
           kernels::cuda::Stream stream);
  // The first rank gets the numbers of the others, counts[rank] each, one behind the other. `data`:
  // of other ranks theirs, of the first one memory for all of them.
  void Gather(int64_t rank, float* data, std::span<const int64_t> counts,
              kernels::cuda::Stream stream);
  // tokens[count] of rank 0 become those of every rank.
  void SendTokens(int64_t rank, int32_t* tokens, int64_t count, kernels::cuda::Stream stream);

  // Whether it is true of all ranks, each of which says so. Waits for them on the host. Throws
  // DeviceError if one does not come.
  bool IsTrueOfAll(bool is_true);

  // Ends what waits on the devices or in a call, with any results; called by the thread of `rank`,
  // which is in no other call. It does not wait for that. Later calls throw DeviceError.
  void Abort(int64_t rank);

 private:
  struct Rank {
    nccl::Comm comm = nullptr;
    std::timed_mutex mutex;  // held during a call
  };
  using Ranks = std::vector<std::shared_ptr<Rank>>;
  static void AbortInOrder(const nccl::Api& api, const Ranks& ranks);

  // Of a rank's data.
  struct Piece {
    void* data = nullptr;
    int64_t count = 0;
  };

  template <typename Call>
  void Run(int64_t rank, const char* what, const Call& call);
  // Sends sent(r) to each other rank r, and receives received(r) from it.
  template <typename Sent, typename Received>
  void Exchange(int64_t rank, DType dtype, const Sent& sent, const Received& received,
                kernels::cuda::Stream stream);
  void SumInOrder(int64_t rank, void* data, int64_t count, DType dtype, void* parts,
                  kernels::cuda::Stream stream);

  nccl::Api api_{};
  Ranks ranks_;
  std::atomic<bool> is_aborted_ = false;
  // Of IsTrueOfAll: the round that is on, and the result of the last one.
  std::mutex round_mutex_;
  std::condition_variable round_ended_;
  int64_t num_rounds_ = 0;
  int64_t num_here_ = 0;
  bool is_true_so_far_ = true;
  bool was_true_ = false;
  std::thread aborter_;
  std::future<void> aborted_;  // the aborter has nothing left to do
};

// The Peers as one rank sees them.
struct Peer {
  Peers* peers = nullptr;  // null: the device computes alone
  int64_t rank = 0;

  bool is_first() const { return rank == 0; }
  explicit operator bool() const { return peers != nullptr; }
};

}  // namespace mlc_native
