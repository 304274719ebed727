// FailingAllocation: lets one operator new fail. The programs that link failing_allocation.cc have
// its operator new; it fails only on the thread and in the scope of such an object.
#pragma once

#include <cstdint>

namespace mlc_native::testing {

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
