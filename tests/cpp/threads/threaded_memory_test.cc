// The background loop outlives every allocation of its thread that fails: each request still gets
// exactly one final output, and the next one is served.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "mlc_native/threaded_engine.h"
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

}  // namespace
}  // namespace mlc_native::testing
