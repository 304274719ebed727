// A fixed set of threads for data-parallel loops. A loop is cut into a few parts per thread, the
// last ones shorter, a function of (n, threads, grain) alone; the caller (thread 0) and the workers
// take parts as they come, so that a worker whose core is busy with something else holds nobody up.
// Which thread ran a part must not show in results. num_threads = 1 starts no thread. Workers spin
// for some tens of microseconds after a loop, then park: an idle pool uses no CPU. A call allocates
// nothing. Owner: one engine. One loop at a time: nested or concurrent calls are an InternalError.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace mlc_native {

// Non-owning reference to a callable; valid only while the callable lives (that is, during the call
// it is passed to).
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

class ThreadPool {
 public:
  // num_threads >= 1, counting the caller.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Calls fn(begin, end, thread_index) for parts that cover [0, n) and returns when all are done.
  // A part has at least `grain` items; fewer than 2 * grain stay on the caller. The exception of
  // the lowest part that threw is rethrown here after all parts are done.
  using RangeFn = FunctionRef<void(int64_t, int64_t, int)>;
  void ParallelFor(int64_t n, RangeFn fn, int64_t grain = 1);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mlc_native
