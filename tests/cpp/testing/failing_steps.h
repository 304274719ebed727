// Runs a TestEngine while one allocation of its steps fails. For programs that link allocations.cc;
// one thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "testing/allocations.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {

// Steps until the engine is empty, while the k-th allocation of all these steps fails. Returns
// false if there were fewer. The checker receives outputs outside of the steps, so an output that
// it misses was lost by the engine.
inline bool RunWithFailingAllocation(TestEngine& test, int64_t k) {
  Engine& engine = test.engine();
  std::vector<RequestStreamOutput> received;
  test.intercept = [&](std::vector<RequestStreamOutput> outputs) { received = std::move(outputs); };
  int64_t countdown = k;
  while (!engine.Empty()) {
    {
      const FailingAllocation failing(&countdown);
      engine.Step();
    }
    if (!received.empty()) test.Receive(std::exchange(received, {}));
    engine.AuditPages();
  }
  test.intercept = nullptr;
  test.ExpectIdle();
  return countdown < 0;
}

}  // namespace mlc_native::testing
