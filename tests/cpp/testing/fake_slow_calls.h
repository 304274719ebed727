// SlowCalls without threads or time: a test says when calls run, and matchers say what they cost.
// One thread, except for Spend and CpuSeconds.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "grammar/slow_calls.h"

namespace mlc_native::testing {

class FakeSlowCalls final : public SlowCalls {
 public:
  // A matcher takes this CPU time, on the calling thread (FakeGrammarHooks::on_work).
  static void Spend(double seconds) { spent_ += seconds; }

  void Start(std::shared_ptr<SlowCall> call) override {
    ++num_started_;
    waiting_.push_back(std::move(call));
  }
  void WaitForAny(std::chrono::microseconds) override {}
  Progress ProgressOf(const SlowCall&) const override { return progress; }
  double CpuSeconds() const override { return spent_; }
  double Seconds() const override { return spent_; }

  // Runs the calls that wait and for which `is_due` returns true, in order.
  template <typename IsDue>
  void Run(const IsDue& is_due) {
    std::erase_if(waiting_, [&](const std::shared_ptr<SlowCall>& call) {
      if (!is_due()) return false;
      num_abandoned_ += call->is_abandoned() ? 1 : 0;
      call->Execute([] { return spent_; });
      return true;
    });
  }
  void RunAll() {
    Run([] { return true; });
  }

  int64_t num_waiting() const { return std::ssize(waiting_); }
  int64_t num_started() const { return num_started_; }
  int64_t num_abandoned() const { return num_abandoned_; }

  Progress progress;  // of every call that waits

 private:
  static inline thread_local double spent_ = 0;

  std::vector<std::shared_ptr<SlowCall>> waiting_;
  int64_t num_started_ = 0;
  int64_t num_abandoned_ = 0;
};

}  // namespace mlc_native::testing
