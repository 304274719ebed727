#include "support/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "support/check.h"
#include "support/library_thread.h"
#include "support/mutex.h"

namespace mlc_native {
namespace {

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
  explicit SpinThenPark(std::chrono::microseconds spin_time) : spin_time_(spin_time) {}

  std::chrono::microseconds spin_time() const { return spin_time_; }

  template <typename Ready>
  void Wait(Ready ready) {
    const auto deadline = std::chrono::steady_clock::now() + spin_time_;
    do {
      for (int i = 0; i < 32; ++i) {
        if (ready()) return;
        SpinPause();
      }
    } while (std::chrono::steady_clock::now() < deadline);
    const MutexLock lock(mutex_);
    sleepers_.fetch_add(1);
    while (!ready()) wake_.Wait(mutex_);
    sleepers_.fetch_sub(1);
  }

  void Wake() {
    if (sleepers_.load() == 0) return;
    {
      const MutexLock lock(mutex_);
    }  // a sleeper is either before its check or inside Wait()
    wake_.NotifyAll();
  }

 private:
  const std::chrono::microseconds spin_time_;
  std::atomic<int> sleepers_ = 0;
  Mutex mutex_;
  CondVar wake_;
};

// A part is 1 / (3 * threads) of the remaining loop: long parts first, because each part costs a
// claim, and short ones at the end, because every thread waits for the last one.
constexpr int64_t kShareOfRest = 3;
// A part is never shorter than 1 / (32 * threads) of the loop.
constexpr int64_t kShortestShare = 32;
// Upper bound of the parts of a loop. The maximum, 14 per thread, occurs for n = 64 * threads - 1.
constexpr size_t kMaxPartsPerThread = 16;

}  // namespace

// Parts are claimed one by one from `tickets`. Its low bits count the unclaimed parts and its high
// bits the loops, so that a late claim cannot succeed in a later loop. A thread with a claim may
// read `fn` and `ends`, which the caller changes only when every part is finished.
struct ThreadPool::State {
  State(int threads, std::chrono::microseconds spin_time)
      : num_threads(threads), start(spin_time), done(spin_time) {
    ends.reserve(static_cast<size_t>(threads) * kMaxPartsPerThread);
  }

  static constexpr uint64_t kLoop = uint64_t{1} << 16;  // the unit of the loop counter in tickets

  // Constant after construction.
  const int num_threads;
  std::vector<std::thread> workers;
  // Written by the caller between loops.
  const RangeFn* fn = nullptr;
  std::vector<int64_t> ends;  // end of each part
  Mutex error_mutex;
  std::exception_ptr error MLC_GUARDED_BY(error_mutex);  // of the lowest part that threw
  int64_t error_part MLC_GUARDED_BY(error_mutex) = 0;
  // Synchronized by themselves.
  std::atomic<bool> busy = false;
  std::atomic<bool> stopping = false;
  alignas(64) std::atomic<uint64_t> tickets = 0;
  alignas(64) std::atomic<int64_t> unfinished = 0;
  SpinThenPark start;
  SpinThenPark done;

  bool HasUnclaimed() const { return tickets.load() % kLoop != 0; }

  // Returns a part of the current loop, or -1 if all are taken.
  int64_t Claim() {
    uint64_t current = tickets.load();
    while (current % kLoop != 0) {
      if (tickets.compare_exchange_weak(current, current - 1)) {
        return std::ssize(ends) - static_cast<int64_t>(current % kLoop);
      }
    }
    return -1;
  }

  void Cut(int64_t n, int64_t grain) {
    ends.clear();
    if (num_threads == 1) return ends.push_back(n);
    const int64_t least = std::max({n / (num_threads * kShortestShare), grain, int64_t{1}});
    int64_t begin = 0;
    int64_t size = 0;
    while ((size = (n - begin) / (num_threads * kShareOfRest)) > least) {
      ends.push_back(begin += size);
    }
    const int64_t rest = n - begin;
    const int64_t parts = std::max<int64_t>(1, rest / least);
    for (int64_t i = 1; i <= parts; ++i) ends.push_back(begin + rest * i / parts);
  }

  void RunPart(int64_t part, int thread) {
    try {
      (*fn)(part > 0 ? ends[part - 1] : 0, ends[part], thread);
    } catch (...) {
      const MutexLock lock(error_mutex);
      if (error == nullptr || part < error_part) {
        error = std::current_exception();
        error_part = part;
      }
    }
  }

  void RunParts(int thread) {
    for (int64_t part = Claim(); part >= 0; part = Claim()) {
      RunPart(part, thread);
      if (unfinished.fetch_sub(1) == 1) done.Wake();
    }
  }

  void WorkerMain(int thread) {
    while (true) {
      start.Wait([this] { return HasUnclaimed() || stopping.load(); });
      if (stopping.load()) return;
      RunParts(thread);
    }
  }

  void Stop() {
    stopping.store(true);
    start.Wake();
    for (std::thread& worker : workers) worker.join();
  }

  // Runs every part, on all threads, and returns when they are finished.
  void RunOnAll() {
    unfinished.store(std::ssize(ends));
    const uint64_t loops = tickets.load() / kLoop + 1;
    tickets.store(loops * kLoop + ends.size());
    start.Wake();
    RunParts(0);
    done.Wait([this] { return unfinished.load() == 0; });
  }

  void RethrowError() {
    const MutexLock lock(error_mutex);
    if (error != nullptr) std::rethrow_exception(std::exchange(error, nullptr));
  }
};

ThreadPool::ThreadPool(int num_threads, std::chrono::microseconds spin_time) {
  MLC_CHECK(num_threads >= 1) << "num_threads is " << num_threads;
  state_ = std::make_unique<State>(num_threads, spin_time);
  state_->workers.reserve(num_threads - 1);
  try {
    for (int i = 1; i < num_threads; ++i) {
      state_->workers.push_back(
          StartThread("mlcn-compute", [state = state_.get(), i] { state->WorkerMain(i); }));
    }
  } catch (...) {  // no more threads can be started: end those already running
    state_->Stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { state_->Stop(); }

int ThreadPool::num_threads() const { return state_->num_threads; }

std::chrono::microseconds ThreadPool::spin_time() const { return state_->start.spin_time(); }

void ThreadPool::ParallelFor(int64_t n, RangeFn fn, int64_t grain) {
  if (n <= 0) return;
  State& state = *state_;
  MLC_CHECK(!state.busy.exchange(true)) << "nested or concurrent ParallelFor on one pool";
  state.fn = &fn;
  state.Cut(n, grain);
  if (state.ends.size() == 1) {
    state.RunPart(0, 0);
  } else {
    state.RunOnAll();
  }
  state.busy.store(false);
  state.RethrowError();
}

}  // namespace mlc_native
