#include "grammar/slow_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>

namespace mlc_native {
namespace {

// Runs until it may return.
class HeldCall : public SlowCall {
 public:
  explicit HeldCall(std::shared_ptr<std::atomic<bool>> may_return)
      : may_return_(std::move(may_return)) {}
  void Run() override {
    has_begun = true;
    while (!*may_return_) std::this_thread::yield();
  }

  std::atomic<bool> has_begun = false;

 private:
  const std::shared_ptr<std::atomic<bool>> may_return_;
};

class ThrowingCall : public SlowCall {
 public:
  void Run() override { throw std::runtime_error("it fails"); }
};

// Clocks that the test sets.
class Clocks final : public SlowCalls {
 public:
  void Start(std::shared_ptr<SlowCall>) override {}
  void WaitForAny(std::chrono::microseconds) override {}
  Progress ProgressOf(const SlowCall&) const override { return {}; }
  double CpuSeconds() const override { return cpu_seconds; }
  double Seconds() const override { return seconds; }

  double cpu_seconds = 0;
  double seconds = 0;
};

TEST(MatcherCost, CountsLongCallsAmongShortOnes) {
  Clocks clocks;
  MatcherCost cost;
  const auto call = [&](double cpu_seconds, double seconds) {
    const double start = cost.Start(clocks);
    clocks.cpu_seconds += cpu_seconds;
    clocks.seconds += seconds;
    cost.Stop(clocks, start);
  };
  for (int i = 0; i < 3; ++i) call(0, 1e-5);
  EXPECT_NEAR(cost.Take(), 3e-5, 1e-12);
  call(1e-5, 10);  // interrupted, as far as is known
  EXPECT_NEAR(cost.Take(), MatcherCost::kShortSeconds, 1e-12);
  for (int token = 0; token < 3; ++token) {  // an accept, then a mask
    call(0.03, 0.04);
    call(1e-5, 10);
    EXPECT_NEAR(cost.Take(), 0.03001, 1e-12);
  }
  call(1e-5, 10);
  EXPECT_NEAR(cost.Take(), 1e-5, 1e-12);
  call(1e-5, 2e-5);  // the clock of time again
  EXPECT_NEAR(cost.Take(), 2e-5, 1e-12);
}

class SlowCallsTest : public ::testing::Test {
 protected:
  std::shared_ptr<HeldCall> Held() { return std::make_shared<HeldCall>(may_return_); }
  static void Await(const std::atomic<bool>& condition) {  // the time limit of the test ends it
    while (!condition) std::this_thread::yield();
  }
  static void AwaitEnd(SlowCalls& calls, const SlowCall& call) {
    while (!call.is_done()) calls.WaitForAny(std::chrono::milliseconds(1));
  }

  const std::shared_ptr<std::atomic<bool>> may_return_ = std::make_shared<std::atomic<bool>>(false);
};

TEST_F(SlowCallsTest, OneThatRunsDoesNotHoldUpTheNext) {
  SlowCallThreads calls;
  const auto held = Held();
  calls.Start(held);
  Await(held->has_begun);
  const auto next = std::make_shared<ThrowingCall>();
  calls.Start(next);
  AwaitEnd(calls, *next);
  EXPECT_THROW(std::rethrow_exception(next->error()), std::runtime_error);
  EXPECT_FALSE(held->is_done());
  *may_return_ = true;
  AwaitEnd(calls, *held);
  EXPECT_EQ(held->error(), nullptr);
  EXPECT_GE(held->seconds(), 0);
}

TEST_F(SlowCallsTest, ProgressTellsWhatRunsFromWhatWaits) {
  SlowCallThreads calls;
  const auto first = Held(), second = Held(), third = Held();
  for (const auto& call : {first, second, third}) calls.Start(call);
  Await(first->has_begun);
  Await(second->has_begun);
  while (calls.ProgressOf(*first).cpu_seconds == 0) std::this_thread::yield();
  while (calls.ProgressOf(*third).waiting_seconds == 0) std::this_thread::yield();
  EXPECT_EQ(calls.ProgressOf(*first).waiting_seconds, 0);
  EXPECT_EQ(calls.ProgressOf(*third).cpu_seconds, 0);
  third->Abandon();
  *may_return_ = true;
  AwaitEnd(calls, *third);
  EXPECT_FALSE(third->has_begun);
}

// Whatever the call does: the thread is left behind.
TEST_F(SlowCallsTest, TheEndDoesNotWaitForACallThatDoesNotReturn) {
  std::weak_ptr<HeldCall> left;
  {
    SlowCallThreads calls;
    const auto held = Held();
    left = held;
    calls.Start(held);
    Await(held->has_begun);
  }
  EXPECT_FALSE(left.expired());
  *may_return_ = true;
  while (!left.expired()) std::this_thread::yield();
}

}  // namespace
}  // namespace mlc_native
