#include "support/thread_pool.h"

#if defined(__linux__)
#include <sched.h>
#endif

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

// The thread that calls it; where the system refuses, it runs on any.
void StayOn([[maybe_unused]] const std::vector<int>& cpus) {
#if defined(__linux__)
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof(set), &set);
#endif
}

// A part is 1 / (3 * threads) of the remaining loop: long parts first, because each part costs a
// claim, and short ones at the end, because every thread waits for the last one.
constexpr int64_t kShareOfRest = 3;
// A part is never shorter than 1 / (32 * threads) of the loop.
constexpr int64_t kShortestShare = 32;
// Upper bound of the parts of a loop. The maximum, 14 per thread, occurs for n = 64 * threads - 1.
constexpr size_t kMaxPartsPerThread = 16;

}  // namespace

std::vector<ThreadNode> DivideThreads(int num_threads,
                                      const std::vector<std::vector<int>>& cpus_of_nodes) {
  int64_t all = 0;
  for (const std::vector<int>& cpus : cpus_of_nodes) all += std::ssize(cpus);
  std::vector<ThreadNode> nodes;
  int64_t before = 0;
  for (const std::vector<int>& cpus : cpus_of_nodes) {
    const int64_t behind = before + std::ssize(cpus);
    const auto threads = static_cast<int>(num_threads * behind / all - num_threads * before / all);
    if (threads > 0) nodes.push_back({threads, cpus});
    before = behind;
  }
  if (nodes.size() < 2) return {{num_threads, {}}};
  return nodes;
}

// Parts are claimed one by one from the `tickets` of a node. Their low bits count the unclaimed
// parts and their high bits the loops, so that a late claim cannot succeed in a later loop. A
// thread with a claim may read `fn`, `ends` and `end_part`, which the caller changes only when
// every part is finished.
struct ThreadPool::State {
  struct alignas(64) Node {
    std::atomic<uint64_t> tickets = 0;
    int64_t end_part = 0;  // behind the last part of its interval
    int first_thread = 0;
    int num_threads = 0;
    std::vector<int> cpus;
  };

  State(const std::vector<ThreadNode>& of, std::chrono::microseconds spin_time)
      : nodes(of.size()), start(spin_time), done(spin_time) {
    for (size_t i = 0; i < of.size(); ++i) {
      MLC_CHECK(of[i].num_threads >= 1) << "num_threads is " << of[i].num_threads;
      nodes[i].first_thread = num_threads;
      nodes[i].num_threads = of[i].num_threads;
      nodes[i].cpus = of[i].cpus;
      num_threads += of[i].num_threads;
    }
    ends.reserve(static_cast<size_t>(num_threads) * kMaxPartsPerThread);
  }

  static constexpr uint64_t kLoop = uint64_t{1} << 16;  // the unit of the loop counter in tickets

  // Constant after construction, except the tickets and parts of a node.
  std::vector<Node> nodes;
  int num_threads = 0;
  std::vector<std::thread> workers;
  // Written by the caller between loops.
  uint64_t num_loops = 0;
  const RangeFn* fn = nullptr;
  std::vector<int64_t> ends;  // end of each part
  Mutex error_mutex;
  std::exception_ptr error MLC_GUARDED_BY(error_mutex);  // of the lowest part that threw
  int64_t error_part MLC_GUARDED_BY(error_mutex) = 0;
  // Synchronized by themselves.
  std::atomic<bool> busy = false;
  std::atomic<bool> stopping = false;
  alignas(64) std::atomic<int64_t> unfinished = 0;
  SpinThenPark start;
  SpinThenPark done;

  bool HasUnclaimed() const {
    return std::ranges::any_of(nodes,
                               [](const Node& node) { return node.tickets.load() % kLoop != 0; });
  }

  // Returns a part of the loop, or -1 if all of the node's are taken or it is not at this loop.
  static int64_t Claim(Node& node, uint64_t loop) {
    uint64_t current = node.tickets.load();
    while (current % kLoop != 0 && current / kLoop == loop) {
      if (node.tickets.compare_exchange_weak(current, current - 1)) {
        return node.end_part - static_cast<int64_t>(current % kLoop);
      }
    }
    return -1;
  }

  // Cuts [0, n); a loop that is too short to divide is one part.
  void Cut(int64_t n, int64_t grain) {
    ends.clear();
    const auto num_nodes = std::ssize(nodes);
    if (num_threads == 1 || n < num_nodes * grain) {
      ends.push_back(n);
      for (Node& node : nodes) node.end_part = 1;
      return;
    }
    for (Node& node : nodes) {
      CutInterval(n * node.first_thread / num_threads,
                  n * (node.first_thread + node.num_threads) / num_threads, node.num_threads,
                  grain);
      node.end_part = std::ssize(ends);
    }
  }

  void CutInterval(int64_t begin, int64_t end, int threads, int64_t grain) {
    if (begin == end) return;
    const int64_t least = std::max({(end - begin) / (threads * kShortestShare), grain, int64_t{1}});
    int64_t size = 0;
    while ((size = (end - begin) / (threads * kShareOfRest)) > least) {
      ends.push_back(begin += size);
    }
    const int64_t rest = end - begin;
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

  // Takes the parts of its own node first. A thread that is still here when the next loop begins
  // takes none of another node, because its own node has parts for it.
  void RunParts(int thread, size_t own_node) {
    const uint64_t loop = nodes[own_node].tickets.load() / kLoop;
    for (size_t i = 0; i < nodes.size(); ++i) {
      Node& node = nodes[(own_node + i) % nodes.size()];
      for (int64_t part = Claim(node, loop); part >= 0; part = Claim(node, loop)) {
        RunPart(part, thread);
        if (unfinished.fetch_sub(1) == 1) done.Wake();
      }
    }
  }

  void WorkerMain(int thread, size_t own_node) {
    StayOn(nodes[own_node].cpus);
    while (true) {
      start.Wait([this] { return HasUnclaimed() || stopping.load(); });
      if (stopping.load()) return;
      RunParts(thread, own_node);
    }
  }

  void StartWorkers() {
    workers.reserve(num_threads - 1);
    for (size_t node = 0; node < nodes.size(); ++node) {
      for (int i = 0; i < nodes[node].num_threads; ++i) {
        const int thread = nodes[node].first_thread + i;
        if (thread == 0) continue;  // the caller
        workers.push_back(
            StartThread("mlcn-compute", [this, thread, node] { WorkerMain(thread, node); }));
      }
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
    ++num_loops;
    int64_t first_part = 0;
    for (Node& node : nodes) {
      const int64_t parts = node.end_part - std::exchange(first_part, node.end_part);
      node.tickets.store(num_loops * kLoop + static_cast<uint64_t>(parts));
    }
    start.Wake();
    RunParts(0, 0);
    done.Wait([this] { return unfinished.load() == 0; });
  }

  void RethrowError() {
    const MutexLock lock(error_mutex);
    if (error != nullptr) std::rethrow_exception(std::exchange(error, nullptr));
  }
};

ThreadPool::ThreadPool(int num_threads, std::chrono::microseconds spin_time)
    : ThreadPool({{.num_threads = num_threads, .cpus = {}}}, spin_time) {}

ThreadPool::ThreadPool(const std::vector<ThreadNode>& nodes, std::chrono::microseconds spin_time)
    : state_(std::make_unique<State>(nodes, spin_time)) {
  try {
    state_->StartWorkers();
  } catch (...) {  // no more threads can be started: end those already running
    state_->Stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { state_->Stop(); }

int ThreadPool::num_threads() const { return state_->num_threads; }

int ThreadPool::num_nodes() const { return static_cast<int>(state_->nodes.size()); }

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
