// The engine outlives every allocation that fails on the thread of its background loop or of a
// caller: each request still gets exactly one final output, and the next one is served.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mlc_native/threaded_engine.h"
#include "support/completion.h"
#include "support/error.h"
#include "testing/allocations.h"
#include "testing/threaded_harness.h"

namespace mlc_native::testing {
namespace {

TEST(ThreadedMemory, EveryRequestEndsOnceWhateverAllocationOfTheLoopFails) {
  const TestEngineSetup setup;
  ThreadedHarness h(setup);
  h.on_log = [](LogLevel, std::string_view) {};
  h.StartAndLoad();
  int64_t k = 1;
  int num_errors = 0;
  for (bool has_failed = true; has_failed && !HasFailure(); k += k < 100 ? 1 : 7) {
    h.engine().Call([&](Engine&) { FailAllocation(k); });
    const std::string id = "a name that does not fit into a small string " + std::to_string(k);
    const std::vector<int32_t> prompt = Prompt(20, k);
    h.Add(id, prompt, Greedy(4, 2));
    const RequestHistory history = h.Await(id);
    h.engine().Call([&](Engine&) { has_failed = FailAllocation(-1); });
    num_errors += !history.error_message.empty();
    for (const SequenceHistory& sequence : history.sequences) {
      if (sequence.finish_reason == FinishReason::kError) {
        EXPECT_NE(history.error_message, "") << k;
      } else {
        EXPECT_EQ(sequence.token_ids, Oracle(setup.model, prompt, 4)) << k;
      }
    }
  }
  EXPECT_GT(k, 50) << "the scenario is too small";
  EXPECT_GT(num_errors, 10);
  h.ExpectHealthy();
}

// More than the reserve helps against: then the loop waits.
TEST(ThreadedMemory, TheModelStaysLoadedHoweverManyAllocationsFail) {
  ThreadedHarness h;
  h.on_log = [](LogLevel, std::string_view) {};
  h.StartAndLoad();
  for (int64_t k = 1; k < 60 && !HasFailure(); k += 7) {
    h.engine().Call([&](Engine&) { FailAllocation(k, 12); });
    const std::string id = "a name that does not fit into a small string " + std::to_string(k);
    h.AddUnchecked(id);
    h.Await(id);
    h.engine().Call([&](Engine&) { FailAllocation(-1); });
  }
  h.ExpectHealthy();
}

// A caller that there is no memory for hears so, and may try again.
TEST(ThreadedMemory, EveryAllocationOfACallerMayFail) {
  const std::string id = "a name that does not fit into a small string";
  const auto attempt = [](const auto& call) {
    try {
      call();
    } catch (const std::bad_alloc&) {
      return;
    }
  };
  for (const int64_t count : {1, 2, 5}) {
    bool has_failed = true;
    for (int64_t k = 1; has_failed && !HasFailure(); k += k < 20 ? 1 : 7) {
      ThreadedHarness h;  // a new one, whose channels have no room yet
      h.Start();
      const std::string config = h.ReloadJson();
      FailAllocation(k, count);
      attempt([&] { h.engine().Unload(); });
      attempt([&] { h.engine().Reload(config); });
      h.engine().AbortRequest(id);
      has_failed = FailAllocation(-1);
      h.Load();
      h.ExpectHealthy();
    }
  }
}

TEST(ThreadedMemory, LoopsThatCouldNotBeStartedAreStartedAgain) {
  bool has_failed = true;
  for (int64_t k = 1; has_failed && !HasFailure(); ++k) {
    const std::unique_ptr<ThreadedEngine> engine = ThreadedEngine::Create();
    engine->InitThreadedEngine("cpu", [](const std::vector<RequestStreamOutput>&) {}, nullptr);
    FailAllocation(k);
    try {
      engine->Start();
    } catch (const std::bad_alloc&) {
    }
    has_failed = FailAllocation(-1);
    try {
      engine->Start();
    } catch (const InvalidConfig&) {  // the first of them runs
    }
    engine->Unload();
    engine->Stop();
  }
}

// What there is no memory to send is given up where there is none, either.
TEST(ThreadedMemory, GivingUpACompletionTakesNoMemory) {
  Completion completion;
  Completion::Waiter waiter = completion.waiter();
  FailAllocation(1, 3);
  {
    const Completion given_up = std::move(completion);
  }
  EXPECT_FALSE(FailAllocation(-1)) << "the destructor allocates";
  EXPECT_THROW(waiter.Wait(), std::runtime_error);
}

}  // namespace
}  // namespace mlc_native::testing
