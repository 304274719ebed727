// ThreadPool is a fixed set of threads for data-parallel loops.
//
// A loop is divided into a few parts per thread, the last ones shorter; the division depends only
// on (n, threads, grain). The caller (thread 0) and the workers take parts in turn, so a worker
// whose core is busy does not delay the others. Results must not depend on the thread that runs a
// part. num_threads = 1 starts no thread.
//
// On a machine with several NUMA nodes the threads are divided among them, and so is every loop: a
// thread takes parts from the interval of its own node first, then helps the others. What a loop
// over [0, n) writes first is therefore in the memory of the node that reads it in another loop
// over as many or proportionally many items. The caller counts as a thread of the first node, but
// stays free to run anywhere.
//
// A thread that waits, for a loop or for the end of one, spins for a while and then sleeps, so an
// idle pool uses no CPU. A call allocates no memory. Owned by one engine; one loop at a time:
// nested or concurrent calls throw InternalError.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "mlc_native/detail/export.h"

namespace mlc_native {

// A non-owning reference to a callable, valid while the callable lives (during the call it is
// passed to).
template <typename Signature>
class FunctionRef;

template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  template <typename F, typename = std::enable_if_t<!std::is_same_v<std::decay_t<F>, FunctionRef>>>
  FunctionRef(F&& f)  // NOLINT(google-explicit-constructor): made to be passed a lambda
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}

  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

// Threads of a pool that stay on one NUMA node.
struct ThreadNode {
  int num_threads = 0;    // at least 1
  std::vector<int> cpus;  // that they may run on; empty: any
};

// Divides threads in proportion to the CPUs of each node; a node without a thread is left out. With
// one node they may run anywhere.
MLC_NATIVE_PRIVATE_API std::vector<ThreadNode> DivideThreads(
    int num_threads, const std::vector<std::vector<int>>& cpus_of_nodes);

class MLC_NATIVE_PRIVATE_API ThreadPool {
 public:
  // Long enough to bridge the serial parts between the loops of a forward, short enough to leave a
  // shared core to other threads.
  static constexpr std::chrono::microseconds kSpinTime{40};

  // num_threads >= 1, counting the caller.
  explicit ThreadPool(int num_threads, std::chrono::microseconds spin_time = kSpinTime);
  // At least one node.
  ThreadPool(const std::vector<ThreadNode>& nodes, std::chrono::microseconds spin_time);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;
  int num_nodes() const;
  std::chrono::microseconds spin_time() const;

  // Calls fn(begin, end, thread_index) for parts that cover [0, n) and returns when all are done.
  // A part has at least `grain` items; a loop of fewer than 2 * grain runs on the caller alone. If
  // parts throw, the exception of the lowest one is rethrown after all parts are done.
  using RangeFn = FunctionRef<void(int64_t, int64_t, int)>;
  void ParallelFor(int64_t n, RangeFn fn, int64_t grain = 1);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mlc_native
