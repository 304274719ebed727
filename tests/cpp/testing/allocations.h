// Counts the allocations of a test and makes them fail. Programs that link allocations.cc use its
// operator new. Counters are per thread.
#pragma once

#include <cstdint>

namespace mlc_native::testing {

// Returns the number of calls of operator new on this thread.
int64_t NumAllocations();

// Makes the countdown-th operator new of this thread from now on fail, and the next ones up to
// `count`; -1: none. Returns whether the failures that were set before have come, or none were set.
bool FailAllocation(int64_t countdown, int64_t count = 1);

// Makes one operator new in its scope fail.
class FailingAllocation {
 public:
  // The *countdown-th allocation from now on throws std::bad_alloc. At the end of the scope
  // *countdown is the remaining number; negative if the allocation has failed.
  explicit FailingAllocation(int64_t* countdown);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

 private:
  int64_t* const countdown_;
};

}  // namespace mlc_native::testing
