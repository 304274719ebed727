#include "cuda/emulator/fibers.h"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cuda/device.cuh"

// What kernels know as built-in variables, of the fiber that runs.
dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace mlc_native::emulator {
namespace {

constexpr size_t kStackBytes = 256 * 1024;
constexpr size_t kPage = 4096;
constexpr size_t kLine = 64;  // of the cache
constexpr size_t kSlotBytes = 64;
constexpr unsigned kWarp = 32;

[[noreturn]] void Die(const char* message) {
  std::fprintf(stderr, "emulated kernel: %s (block %u %u, thread %u)\n", message, blockIdx.x,
               blockIdx.y, threadIdx.x);
  std::abort();
}

struct Barrier {
  unsigned arrived = 0;
  unsigned generation = 0;
};

struct Warp {
  Barrier barrier;
  unsigned num_exchanges = 0;
  // Data of the last two exchanges: no lane starts the third before all have left the first.
  alignas(16) std::array<std::byte, 2 * kWarp * kSlotBytes> slots;
};

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

void Arrive(const Copy& copy) {
  if (copy.from == nullptr) {
    std::memset(copy.to, 0, copy.bytes);
  } else {
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
}

struct Fiber {
  std::unique_ptr<std::byte[]> stack{new std::byte[kStackBytes]};
  // Stacks that all began at the same place of a page would share a few lines of the cache.
  size_t first_bytes = 0;
  ucontext_t start;  // of its first launch
  void* context[5];
  bool has_stack = false;  // that it has run on
  bool finished = false;
  bool has_waited = false;  // for the previous launch
  bool is_fenced = false;   // since it has waited for products
  unsigned num_exchanges = 0;
  unsigned num_published = 0;  // how often it has published
  std::vector<Copy> uncommitted;
  std::deque<std::vector<Copy>> groups;
  std::vector<std::function<void()>> uncommitted_products;
  std::deque<std::vector<std::function<void()>>> products;
};

// The blocks of a cluster, which run at the same time; mostly one.
class Cluster {
 public:
  // `first`: its first block. `shield`: null, or to be called in front of the wait for the previous
  // launch and behind it.
  void Run(dim3 first, unsigned blocks, unsigned threads_of_block,
           const std::function<void()>& thread, void (*shield)(bool)) {
    const unsigned threads = blocks * threads_of_block;
    first_block_ = first;
    threads_of_block_ = threads_of_block;
    while (fibers_.size() < threads) {
      fibers_.push_back(std::make_unique<Fiber>());
      fibers_.back()->first_bytes = fibers_.size() * 9 * kLine % kPage;
    }
    warps_.assign((threads + kWarp - 1) / kWarp, Warp());
    barriers_.assign(blocks, Barrier());
    num_ended_.assign(blocks, 0);
    all_ = Barrier();
    previous_ = Barrier();
    shield_ = shield;
    thread_ = &thread;
    DrawOrder(threads);
    for (unsigned i = 0; i < threads; ++i) Prepare(*fibers_[i]);
    num_running_ = threads;
    at_ = 0;
    waits_ = 0;
    if (shield_ != nullptr) shield_(true);
    if (__builtin_setjmp(host_) == 0) Resume();
  }

  Fiber& fiber() { return *fibers_[order_[at_]]; }
  Warp& warp() { return warps_[order_[at_] / kWarp]; }
  unsigned rank() const { return order_[at_] / threads_of_block_; }
  uint64_t AnyOf(uint64_t size) {
    return std::uniform_int_distribution<uint64_t>(0, size == 0 ? 0 : size - 1)(random_);
  }
  unsigned num_threads() const { return static_cast<unsigned>(order_.size()); }

  // `step` chooses the fiber that runs while this one waits.
  void Wait(Barrier& barrier, unsigned count, void (Cluster::*step)()) {
    waits_ = 0;
    if (++barrier.arrived == count) {
      barrier.arrived = 0;
      ++barrier.generation;
      return;
    }
    const unsigned generation = barrier.generation;
    while (barrier.generation == generation) {
      if (++waits_ > 4 * num_threads()) Die("a barrier that not all threads reach");
      SwitchToNext(step);
    }
    waits_ = 0;
  }
  void AwaitOthers(const std::function<bool()>& is_done) {
    while (!is_done()) {
      if (++waits_ > 4 * num_threads()) Die("waits for what never happens");
      SwitchToNext(&Cluster::SelectNext);
    }
    waits_ = 0;
  }
  void NoteProgress() { waits_ = 0; }
  void WaitForBlock() { Wait(barriers_[rank()], threads_of_block_, &Cluster::SelectNext); }
  void WaitForCluster() { Wait(all_, num_threads(), &Cluster::SelectNext); }
  void WaitForWarp() { Wait(warp().barrier, kWarp, &Cluster::SelectNextLane); }

  void WaitForPrevious() {
    fiber().has_waited = true;
    Wait(previous_, num_threads(), &Cluster::SelectNext);
    if (shield_ != nullptr) shield_(false);
    shield_ = nullptr;
  }

  void ClearShared(unsigned blocks, size_t bytes) {
    shared_.resize(blocks);
    for (auto& shared : shared_) shared.assign(bytes + 16, std::byte{0xff});
    copied_.resize(blocks);
    for (auto& copied : copied_) copied.assign(bytes / kUnit + 1, Copied());
  }
  std::byte* shared(unsigned rank) {
    const auto address = reinterpret_cast<uintptr_t>(shared_[rank].data());
    return reinterpret_cast<std::byte*>((address + 15) / 16 * 16);
  }
  // That the running thread has waited for a copy to there.
  void NoteCopy(const Copy& copy) {
    for (size_t i = 0; i < copy.bytes; i += kUnit) {
      Copied* const copied = CopiedAt(static_cast<const std::byte*>(copy.to) + i);
      if (copied != nullptr) *copied = {order_[at_] + 1, fiber().num_published};
    }
  }
  bool IsPublished(const void* at) {
    const Copied* const copied = CopiedAt(at);
    return copied == nullptr || copied->by == 0 ||
           fibers_[copied->by - 1]->num_published > copied->published;
  }
  const void* SharedOf(const void* own, unsigned of_rank) {
    if (of_rank >= shared_.size()) Die("a block that is not in the cluster");
    if (num_ended_[of_rank] > 0) Die("reads the shared memory of a block that has ended");
    return shared(of_rank) + (static_cast<const std::byte*>(own) - shared(rank()));
  }

 private:
  // A fiber's stack outlives the launch: behind one thread's end begins, in a later launch, another
  // thread. To make a context anew would take two system calls for each.
  [[noreturn]] static void Main() {
    for (;;) {
      Cluster& running = Get();
      (*running.thread_)();
      if (!running.fiber().has_waited) Die("a thread that does not wait for the previous launch");
      running.End();
    }
  }

  // Returns in the fiber's next launch.
  void End() {
    Fiber& ended = fiber();
    ended.finished = true;
    ++num_ended_[rank()];
    const bool was_last = --num_running_ == 0;
    if (__builtin_setjmp(ended.context) != 0) return;
    if (was_last) __builtin_longjmp(host_, 1);
    waits_ = 0;
    SelectNext();
    Resume();
  }

  void Prepare(Fiber& fiber) {
    fiber.finished = false;
    fiber.has_waited = false;
    fiber.is_fenced = false;
    fiber.num_exchanges = 0;
    fiber.num_published = 0;
    fiber.uncommitted.clear();
    fiber.groups.clear();
    fiber.uncommitted_products.clear();
    fiber.products.clear();
  }

  // Its first launch follows.
  static void Start(Fiber& fiber) {
    fiber.has_stack = true;
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = fiber.stack.get();
    fiber.start.uc_stack.ss_size = kStackBytes - fiber.first_bytes;
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, &Cluster::Main, 0);
    setcontext(&fiber.start);
  }

  // Warps in any order, the lanes of each in any order.
  void DrawOrder(unsigned threads) {
    std::vector<unsigned> warps(threads / kWarp);
    std::iota(warps.begin(), warps.end(), 0u);
    std::shuffle(warps.begin(), warps.end(), random_);
    order_.clear();
    for (const unsigned warp : warps) {
      for (unsigned lane = 0; lane < kWarp; ++lane) order_.push_back(warp * kWarp + lane);
      std::shuffle(order_.end() - kWarp, order_.end(), random_);
    }
  }

  // Of each kUnit bytes of dynamic shared memory: which thread has waited for the last copy to
  // there (1 is thread 0; 0: none), and how often it had published before.
  static constexpr size_t kUnit = 8;
  struct Copied {
    unsigned by = 0;
    unsigned published = 0;
  };
  Copied* CopiedAt(const void* at) {
    auto& copied = copied_[rank()];
    const auto unit =
        static_cast<size_t>(static_cast<const std::byte*>(at) - shared(rank())) / kUnit;
    return unit < copied.size() ? &copied[unit] : nullptr;
  }

  void SelectNextLane() {
    const size_t first = at_ / kWarp * kWarp;
    do {
      at_ = first + (at_ + 1) % kWarp;
    } while (fiber().finished);
  }
  void SelectNext() {
    do {
      at_ = (at_ + 1) % order_.size();
    } while (fiber().finished);
  }

  // swapcontext would make two system calls, and setjmp would save what no kernel changes.
  void SwitchToNext(void (Cluster::*step)()) {
    Fiber& from = fiber();
    (this->*step)();
    if (&fiber() == &from) return;
    if (__builtin_setjmp(from.context) == 0) Resume();
  }

  [[noreturn, gnu::noinline]] void Resume() {
    threadIdx = {order_[at_] % threads_of_block_, 0, 0};
    blockIdx = {first_block_.x + rank(), first_block_.y, first_block_.z};
    Fiber& to = fiber();
    if (!to.has_stack) Start(to);
    __builtin_longjmp(to.context, 1);
  }

 public:
  static Cluster& Get() {
    static Cluster cluster;
    return cluster;
  }

 private:
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  std::vector<std::vector<std::byte>> shared_;  // of each block
  std::vector<std::vector<Copied>> copied_;     // likewise
  std::vector<Barrier> barriers_;               // of each block
  std::vector<unsigned> num_ended_;             // threads of each block
  Barrier all_;
  Barrier previous_;
  dim3 first_block_;
  unsigned threads_of_block_ = 0;
  void (*shield_)(bool) = nullptr;
  const std::function<void()>* thread_ = nullptr;
  std::vector<unsigned> order_;
  size_t at_ = 0;  // into order_
  unsigned num_running_ = 0;
  unsigned waits_ = 0;  // since something last went on
  void* host_[5];
  std::mt19937 random_{20240607};
};

}  // namespace

void RunGrid(const Grid& grid, unsigned threads, unsigned cluster, size_t shared_bytes,
             const std::function<void()>& thread, void (*shield)(bool)) {
  Cluster& running = Cluster::Get();
  if (threads % kWarp != 0 || threads == 0 || threads > 1024) Die("an odd number of threads");
  if (cluster == 0 || cluster > 8 || grid.x % cluster != 0) Die("an odd cluster");
  blockDim = {threads, 1, 1};
  gridDim = {grid.x, grid.y, grid.z};
  const uint64_t num_clusters = uint64_t{grid.x} / cluster * grid.y * grid.z;
  const uint64_t other = running.AnyOf(num_clusters);
  uint64_t index = 0;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; x += cluster) {
        running.ClearShared(cluster, shared_bytes);
        const bool is_watched = index == 0 || index == other || index == num_clusters - 1;
        running.Run({x, y, z}, cluster, threads, thread, is_watched ? shield : nullptr);
        ++index;
      }
    }
  }
}

void* DynamicShared() { return Cluster::Get().shared(Cluster::Get().rank()); }

void ClusterBarrier() { Cluster::Get().WaitForCluster(); }
const void* SharedOfCluster(const void* own, unsigned rank) {
  return Cluster::Get().SharedOf(own, rank);
}
void BlockBarrier() { Cluster::Get().WaitForBlock(); }
void WarpBarrier() { Cluster::Get().WaitForWarp(); }
void WaitForPrevious() { Cluster::Get().WaitForPrevious(); }
void AwaitOthers(const std::function<bool()>& is_done) { Cluster::Get().AwaitOthers(is_done); }
void NoteProgress() { Cluster::Get().NoteProgress(); }

WarpExchange::WarpExchange(const void* mine, size_t bytes) {
  if (bytes > kSlotBytes) Die("a warp exchange of too many bytes");
  Cluster& running = Cluster::Get();
  Warp& warp = running.warp();
  std::byte* slots = warp.slots.data() + (running.fiber().num_exchanges++ % 2) * kWarp * kSlotBytes;
  std::memcpy(slots + threadIdx.x % kWarp * kSlotBytes, mine, bytes);
  WarpBarrier();
  slots_ = slots;
}

const void* WarpExchange::of(unsigned lane) const { return slots_ + lane % kWarp * kSlotBytes; }

void CheckAligned(const void* address, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) Die("an address that is not aligned");
}

void CopyLater(void* to, const void* from, size_t bytes) {
  CheckAligned(to, bytes);
  CheckAligned(from, bytes);
  const Copy copy{to, from, bytes};
  // The hardware may read at once.
  if (from != nullptr) static_cast<void>(*static_cast<const volatile std::byte*>(from));
  if ((blockIdx.x + blockIdx.y + blockIdx.z) % 2 == 1) return Arrive(copy);
  Cluster::Get().fiber().uncommitted.push_back(copy);
}

void CommitCopies() {
  Fiber& fiber = Cluster::Get().fiber();
  fiber.groups.push_back(std::move(fiber.uncommitted));
  fiber.uncommitted.clear();
}

void WaitForCopies(int groups_left) {
  auto& groups = Cluster::Get().fiber().groups;
  while (static_cast<int>(groups.size()) > groups_left) {
    for (const Copy& copy : groups.front()) {
      Arrive(copy);
      Cluster::Get().NoteCopy(copy);
    }
    groups.pop_front();
  }
}

void Publish() { ++Cluster::Get().fiber().num_published; }

void CheckPublished(const void* shared) {
  if (!Cluster::Get().IsPublished(shared)) Die("a product reads what was not published");
}

void FenceProducts() { Cluster::Get().fiber().is_fenced = true; }

void MultiplyLater(std::function<void()> product) {
  if (!Cluster::Get().fiber().is_fenced) Die("a product without a fence in front of it");
  if ((blockIdx.x + blockIdx.y + blockIdx.z) / 2 % 2 == 1) return product();
  Cluster::Get().fiber().uncommitted_products.push_back(std::move(product));
}

void CommitProducts() {
  Fiber& fiber = Cluster::Get().fiber();
  fiber.products.push_back(std::move(fiber.uncommitted_products));
  fiber.uncommitted_products.clear();
}

void WaitForProducts(int groups_left) {
  Fiber& fiber = Cluster::Get().fiber();
  fiber.is_fenced = false;
  while (static_cast<int>(fiber.products.size()) > groups_left) {
    for (const auto& product : fiber.products.front()) product();
    fiber.products.pop_front();
  }
}

}  // namespace mlc_native::emulator
