// SlowCalls runs calls of grammar matchers that take long, so that no step waits for them.
//
// A call cannot be interrupted. One whose result is not wanted any more is skipped if it has not
// begun; otherwise it keeps its thread until it returns. There are kMaxThreads at most, which start
// when they are needed and run with the lowest priority, so the calls take what the model leaves.
// The destructor waits kPatience for calls that run and leaves the threads behind that are still at
// work then: what they use is their own, and the library stays loaded until they end. Owned by the
// engine; its thread only.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <utility>

#include "mlc_native/detail/export.h"
#include "support/mutex.h"

namespace mlc_native {

// CPU time of the calling thread.
double ThreadCpuSeconds();

// One call. What it uses belongs to it: it may outlive the engine.
class SlowCall {
 public:
  virtual ~SlowCall() = default;
  virtual void Run() = 0;

  // Its result is not wanted any more.
  void Abandon() { is_abandoned_ = true; }
  bool is_abandoned() const { return is_abandoned_; }
  bool is_done() const { return is_done_; }
  // Of a call that is done: what it has thrown, and its CPU time.
  const std::exception_ptr& error() const { return error_; }
  double seconds() const { return seconds_; }

  // Runs it; what it takes is measured by `cpu_seconds`.
  template <typename CpuSeconds>
  void Execute(const CpuSeconds& cpu_seconds) noexcept {
    const double start = cpu_seconds();
    try {
      if (!is_abandoned_) Run();
    } catch (...) {
      error_ = std::current_exception();
    }
    seconds_ = cpu_seconds() - start;
    is_done_ = true;
  }

 private:
  std::atomic<bool> is_abandoned_ = false;
  std::atomic<bool> is_done_ = false;  // set last
  std::exception_ptr error_;
  double seconds_ = 0;
};

class MLC_NATIVE_PRIVATE_API SlowCalls {
 public:
  struct Progress {
    double cpu_seconds = 0;      // since it has begun
    double waiting_seconds = 0;  // wall clock, until it begins
  };

  virtual ~SlowCalls() = default;
  virtual void Start(std::shared_ptr<SlowCall> call) = 0;
  // Returns when a call ends, or after that time at the latest. It may have ended before.
  virtual void WaitForAny(std::chrono::microseconds at_most) = 0;
  // Of one that is not done.
  virtual Progress ProgressOf(const SlowCall& call) const = 0;
  // What calls of matchers are measured by, on any thread: CPU time, and time that passes.
  virtual double CpuSeconds() const { return ThreadCpuSeconds(); }
  virtual double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

// What the calls of one matcher take. Calls are measured by the time that passes, which costs
// little to read, until one takes more than kShortSeconds: that one may have been interrupted. It
// counts as kShortSeconds, and from then on CPU time is measured, until all calls between two Takes
// were short. One thread at a time.
class MatcherCost {
 public:
  static constexpr double kShortSeconds = 50e-6;

  double Start(const SlowCalls& calls) const {
    return measures_cpu_ ? calls.CpuSeconds() : calls.Seconds();
  }
  void Stop(const SlowCalls& calls, double start) {
    const double seconds = Start(calls) - start;
    const bool is_long = seconds > kShortSeconds;
    seconds_ += is_long && !measures_cpu_ ? kShortSeconds : seconds;
    any_long_ |= is_long;
    measures_cpu_ |= is_long;
  }
  void Add(double cpu_seconds) { seconds_ += cpu_seconds; }
  // Since the last call of it.
  double Take() {
    measures_cpu_ = std::exchange(any_long_, false);
    return std::exchange(seconds_, 0);
  }

 private:
  double seconds_ = 0;
  bool measures_cpu_ = false;
  bool any_long_ = false;  // since Take
};

class SlowCallThreads final : public SlowCalls {
 public:
  static constexpr int kMaxThreads = 2;
  static constexpr std::chrono::milliseconds kPatience{500};

  SlowCallThreads();
  ~SlowCallThreads() override;
  SlowCallThreads(const SlowCallThreads&) = delete;
  SlowCallThreads& operator=(const SlowCallThreads&) = delete;

  void Start(std::shared_ptr<SlowCall> call) override;
  void WaitForAny(std::chrono::microseconds at_most) override;
  Progress ProgressOf(const SlowCall& call) const override;

 private:
  struct State;
  static void RunThread(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;  // with the threads
};

}  // namespace mlc_native
