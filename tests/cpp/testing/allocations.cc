#include "testing/allocations.h"

#include <cstdlib>
#include <new>
#include <utility>

namespace {

thread_local int64_t num_allocations = 0;
thread_local int64_t allocations_until_failure = -1;  // -1: never
thread_local int64_t failures_to_come = 1;            // in a row

void* AllocateOrFail(size_t size) {
  ++num_allocations;
  if (allocations_until_failure > 0 && --allocations_until_failure == 0) {
    allocations_until_failure = --failures_to_come > 0 ? 1 : -1;
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t size) { return AllocateOrFail(size); }
void* operator new[](size_t size) { return AllocateOrFail(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace mlc_native::testing {

int64_t NumAllocations() { return num_allocations; }

bool FailAllocation(int64_t countdown, int64_t count) {
  failures_to_come = count;
  return std::exchange(allocations_until_failure, countdown) < 0;
}

FailingAllocation::FailingAllocation(int64_t* countdown) : countdown_(countdown) {
  failures_to_come = 1;
  allocations_until_failure = *countdown;
}

FailingAllocation::~FailingAllocation() {
  *countdown_ = allocations_until_failure;
  allocations_until_failure = -1;
}

}  // namespace mlc_native::testing
