#include "cuda/emulator/fibers.h"

#include <setjmp.h>
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
  ucontext_t start;
  jmp_buf context;
  bool started = false;
  bool finished = false;
  bool has_waited = false;  // for the previous launch
  unsigned num_exchanges = 0;
  std::vector<Copy> uncommitted;
  std::deque<std::vector<Copy>> groups;
};

class Block {
 public:
  // `shield`: null, or to be called in front of the wait for the previous launch and behind it.
  void Run(unsigned threads, const std::function<void()>& thread, void (*shield)(bool)) {
    while (fibers_.size() < threads) fibers_.push_back(std::make_unique<Fiber>());
    warps_.assign((threads + kWarp - 1) / kWarp, Warp());
    barrier_ = Barrier();
    previous_ = Barrier();
    shield_ = shield;
    thread_ = &thread;
    DrawOrder(threads);
    for (unsigned i = 0; i < threads; ++i) Prepare(*fibers_[i]);
    num_running_ = threads;
    at_ = 0;
    waits_ = 0;
    if (shield_ != nullptr) shield_(true);
    if (_setjmp(host_) == 0) Resume();
  }

  Fiber& fiber() { return *fibers_[order_[at_]]; }
  Warp& warp() { return warps_[threadIdx.x / kWarp]; }
  uint64_t AnyOf(uint64_t size) {
    return std::uniform_int_distribution<uint64_t>(0, size == 0 ? 0 : size - 1)(random_);
  }
  unsigned num_threads() const { return static_cast<unsigned>(order_.size()); }

  // `step` chooses the fiber that runs while this one waits.
  void Wait(Barrier& barrier, unsigned count, void (Block::*step)()) {
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
  void WaitForBlock() { Wait(barrier_, num_threads(), &Block::SelectNext); }
  void WaitForWarp() { Wait(warp().barrier, kWarp, &Block::SelectNextLane); }

  void WaitForPrevious() {
    fiber().has_waited = true;
    Wait(previous_, num_threads(), &Block::SelectNext);
    if (shield_ != nullptr) shield_(false);
    shield_ = nullptr;
  }

  std::vector<std::byte> shared;

 private:
  static void Main() {
    Block& block = Get();
    (*block.thread_)();
    if (!block.fiber().has_waited) Die("a thread that does not wait for the previous launch");
    block.fiber().finished = true;
    if (--block.num_running_ == 0) _longjmp(block.host_, 1);
    block.waits_ = 0;
    block.SelectNext();
    block.Resume();
  }

  void Prepare(Fiber& fiber) {
    fiber.started = false;
    fiber.finished = false;
    fiber.has_waited = false;
    fiber.num_exchanges = 0;
    fiber.uncommitted.clear();
    fiber.groups.clear();
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = fiber.stack.get();
    fiber.start.uc_stack.ss_size = kStackBytes;
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, &Block::Main, 0);
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

  // Saves with setjmp: swapcontext would make two system calls.
  void SwitchToNext(void (Block::*step)()) {
    Fiber& from = fiber();
    (this->*step)();
    if (&fiber() == &from) return;
    if (_setjmp(from.context) == 0) Resume();
  }

  [[noreturn]] void Resume() {
    threadIdx = {order_[at_], 0, 0};
    Fiber& to = fiber();
    if (!to.started) {
      to.started = true;
      setcontext(&to.start);
    }
    _longjmp(to.context, 1);
  }

 public:
  static Block& Get() {
    static Block block;
    return block;
  }

 private:
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  Barrier barrier_;
  Barrier previous_;
  void (*shield_)(bool) = nullptr;
  const std::function<void()>* thread_ = nullptr;
  std::vector<unsigned> order_;
  size_t at_ = 0;  // into order_
  unsigned num_running_ = 0;
  unsigned waits_ = 0;  // since something last went on
  jmp_buf host_;
  std::mt19937 random_{20240607};
};

}  // namespace

void RunGrid(const Grid& grid, unsigned threads, size_t shared_bytes,
             const std::function<void()>& thread, void (*shield)(bool)) {
  Block& block = Block::Get();
  if (threads % kWarp != 0 || threads == 0 || threads > 1024) Die("an odd number of threads");
  blockDim = {threads, 1, 1};
  gridDim = {grid.x, grid.y, grid.z};
  block.shared.resize(shared_bytes + 16);
  const uint64_t num_blocks = uint64_t{grid.x} * grid.y * grid.z;
  const uint64_t other = block.AnyOf(num_blocks);
  uint64_t index = 0;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        std::fill(block.shared.begin(), block.shared.end(), std::byte{0xff});
        const bool is_watched = index == 0 || index == other || index == num_blocks - 1;
        block.Run(threads, thread, is_watched ? shield : nullptr);
        ++index;
      }
    }
  }
}

void* DynamicShared() {
  const auto address = reinterpret_cast<uintptr_t>(Block::Get().shared.data());
  return reinterpret_cast<void*>((address + 15) / 16 * 16);
}

void BlockBarrier() { Block::Get().WaitForBlock(); }
void WarpBarrier() { Block::Get().WaitForWarp(); }
void WaitForPrevious() { Block::Get().WaitForPrevious(); }

WarpExchange::WarpExchange(const void* mine, size_t bytes) {
  if (bytes > kSlotBytes) Die("a warp exchange of too many bytes");
  Block& block = Block::Get();
  Warp& warp = block.warp();
  std::byte* slots = warp.slots.data() + (block.fiber().num_exchanges++ % 2) * kWarp * kSlotBytes;
  std::memcpy(slots + threadIdx.x % kWarp * kSlotBytes, mine, bytes);
  WarpBarrier();
  slots_ = slots;
}

const void* WarpExchange::of(unsigned lane) const { return slots_ + lane % kWarp * kSlotBytes; }

void CopyLater(void* to, const void* from, size_t bytes) {
  const Copy copy{to, from, bytes};
  // The hardware may read at once.
  if (from != nullptr) static_cast<void>(*static_cast<const volatile std::byte*>(from));
  if ((blockIdx.x + blockIdx.y + blockIdx.z) % 2 == 1) return Arrive(copy);
  Block::Get().fiber().uncommitted.push_back(copy);
}

void CommitCopies() {
  Fiber& fiber = Block::Get().fiber();
  fiber.groups.push_back(std::move(fiber.uncommitted));
  fiber.uncommitted.clear();
}

void WaitForCopies(int groups_left) {
  auto& groups = Block::Get().fiber().groups;
  while (static_cast<int>(groups.size()) > groups_left) {
    for (const Copy& copy : groups.front()) Arrive(copy);
    groups.pop_front();
  }
}

}  // namespace mlc_native::emulator
