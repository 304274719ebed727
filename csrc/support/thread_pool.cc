#include "support/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "support/check.h"

namespace mlc_native {
namespace {

// Long enough to bridge the serial parts between the loops of a forward pass, short enough to leave
// a shared core to others.
constexpr auto kSpinTime = std::chrono::microseconds(40);

void SpinPause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A condition that one side spins on, then sleeps on. `ready` reads atomics that the other side
// writes (sequentially consistent) before Wake: either Wake sees the sleeper or the sleeper sees
// the write.
class SpinThenPark {
 public:
  template <typename Ready>
  void Wait(Ready ready) {
    const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
    do {
      for (int i = 0; i < 32; ++i) {
        if (ready()) return;
        SpinPause();
      }
    } while (std::chrono::steady_clock::now() < deadline);
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    wake_.wait(lock, ready);
    sleepers_.fetch_sub(1);
  }

  void Wake() {
    if (sleepers_.load() == 0) return;
    {
      std::lock_guard lock(mutex_);
    }  // a sleeper is either before its check or inside wait()
    wake_.notify_all();
  }

 private:
  std::atomic<int> sleepers_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
};

struct Loop {
  int64_t n = 0;
  int64_t parts = 0;
  const ThreadPool::RangeFn* fn = nullptr;
};

}  // namespace

struct ThreadPool::State {
  explicit State(int threads) : num_threads(threads), errors(threads) {}

  // Constant after construction.
  const int num_threads;
  std::vector<std::thread> workers;
  // Written by the caller before it raises generation, read by workers until they lower pending.
  Loop loop;
  // Slot i is written by thread i during a loop, read by the caller after it.
  std::vector<std::exception_ptr> errors;
  // Own synchronization.
  std::atomic<bool> busy = false;
  std::atomic<bool> stopping = false;
  alignas(64) std::atomic<uint64_t> generation = 0;
  alignas(64) std::atomic<int> pending = 0;
  SpinThenPark start;
  SpinThenPark done;

  void RunPart(int thread) {
    if (thread >= loop.parts) return;
    try {
      (*loop.fn)(loop.n* thread / loop.parts, loop.n * (thread + 1) / loop.parts, thread);
    } catch (...) {
      errors[thread] = std::current_exception();
    }
  }

  void WorkerMain(int thread) {
    for (uint64_t seen = 0;; ++seen) {
      start.Wait([&] { return generation.load() != seen; });
      if (stopping.load()) return;
      RunPart(thread);
      if (pending.fetch_sub(1) == 1) done.Wake();
    }
  }

  void Stop() {
    stopping.store(true);
    generation.fetch_add(1);
    start.Wake();
    for (std::thread& worker : workers) worker.join();
  }

  // Runs `loop` on all threads and returns when every worker is past it.
  void RunOnAll() {
    pending.store(num_threads - 1);
    generation.fetch_add(1);
    start.Wake();
    RunPart(0);
    done.Wait([&] { return pending.load() == 0; });
  }

  void RethrowFirst() {
    std::exception_ptr first;
    for (std::exception_ptr& error : errors) {
      if (error != nullptr && first == nullptr) first = error;
      error = nullptr;
    }
    if (first != nullptr) std::rethrow_exception(first);
  }
};

ThreadPool::ThreadPool(int num_threads) {
  MLC_CHECK(num_threads >= 1) << "num_threads is " << num_threads;
  state_ = std::make_unique<State>(num_threads);
  state_->workers.reserve(num_threads - 1);
  try {
    for (int i = 1; i < num_threads; ++i) {
      state_->workers.emplace_back([state = state_.get(), i] { state->WorkerMain(i); });
    }
  } catch (...) {  // no more threads to be had: end those already running
    state_->Stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { state_->Stop(); }

int ThreadPool::num_threads() const { return state_->num_threads; }

void ThreadPool::ParallelFor(int64_t n, RangeFn fn, int64_t min_per_thread) {
  if (n <= 0) return;
  State& state = *state_;
  MLC_CHECK(!state.busy.exchange(true)) << "nested or concurrent ParallelFor on one pool";
  const int64_t shares = std::max<int64_t>(1, n / std::max<int64_t>(1, min_per_thread));
  state.loop = {.n = n, .parts = std::min<int64_t>(state.num_threads, shares), .fn = &fn};
  if (state.loop.parts == 1) {
    state.RunPart(0);
  } else {
    state.RunOnAll();
  }
  state.busy.store(false);
  state.RethrowFirst();
}

}  // namespace mlc_native
