// Allocations of a test: counted, and made to fail. The programs that link allocations.cc have its
// operator new. Per thread.
#pragma once

#include <cstdint>

namespace mlc_native::testing {

// Calls of operator new on this thread so far.
int64_t NumAllocations();

// Lets one operator new of its scope fail.
class FailingAllocation {
 public:
  // The *countdown-th allocation from now on throws std::bad_alloc. At the end of the scope
  // *countdown is what is left of it; negative when the allocation has failed.
  explicit FailingAllocation(int64_t* countdown);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

 private:
  int64_t* const countdown_;
};

}  // namespace mlc_native::testing
