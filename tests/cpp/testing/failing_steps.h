// Runs a TestEngine while one allocation of its steps fails. For programs that link allocations.cc.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "testing/allocations.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {

// Steps until nothing is left, the k-th allocation of all these steps failing. False when there
// were fewer. The checker receives outputs outside the steps: what it misses, the engine lost.
inline bool RunWithFailingAllocation(TestEngine& test, int64_t k) {
  Engine& engine = test.engine();
  std::vector<RequestStreamOutput> received;
  const RequestStreamCallback checked = engine.GetRequestStreamCallback();
  engine.SetRequestStreamCallback(
      [&](std::vector<RequestStreamOutput> outputs) { received = std::move(outputs); });
  int64_t countdown = k;
  while (!engine.Empty()) {
    {
      const FailingAllocation failing(&countdown);
      engine.Step();
    }
    if (!received.empty()) checked(std::exchange(received, {}));
    engine.AuditPages();
  }
  engine.SetRequestStreamCallback(checked);
  test.ExpectIdle();
  return countdown < 0;
}

}  // namespace mlc_native::testing
