// The floating point environment in which the library computes. A host may round in another
// direction, take denormal numbers for zero (as programs compiled with -ffast-math do) or ask for a
// signal where a number is invalid. A thread has what the thread had that started it, so without
// this, answers would depend on the host, and a probability of zero could end it. Any thread.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

namespace mlc_native {

// Rounds to the nearest number, keeps denormal numbers and masks all exceptions for its life. Where
// that holds already, it takes a few nanoseconds, which those of <cfenv> would not.
class DefaultFloatEnvironment {
 public:
#if defined(__x86_64__)
  DefaultFloatEnvironment() : before_(_mm_getcsr()) {
    if (changes()) _mm_setcsr(kDefault);
  }
  ~DefaultFloatEnvironment() {
    if (changes()) _mm_setcsr(before_);
  }
#elif defined(__aarch64__)
  DefaultFloatEnvironment() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    if (changes()) asm volatile("msr fpcr, %0" : : "r"(kDefault) : "memory");
  }
  ~DefaultFloatEnvironment() {
    if (changes()) asm volatile("msr fpcr, %0" : : "r"(before_) : "memory");
  }
#else
  DefaultFloatEnvironment() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&before_); }
#endif
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr uint32_t kDefault = 0x1f80;
  static constexpr uint32_t kFlags = 0x3f;  // of exceptions that were masked
  bool changes() const { return (before_ & ~kFlags) != kDefault; }

  const uint32_t before_;
#elif defined(__aarch64__)
  static constexpr uint64_t kDefault = 0;
  bool changes() const { return before_ != kDefault; }

  uint64_t before_;
#else
  std::fenv_t before_;
#endif
};

}  // namespace mlc_native
