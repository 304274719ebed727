// ReleasedGil and AcquiredGil: nanobind's guards, for threads that may outlive the interpreter.
//
// A daemon thread that wants the GIL while the interpreter ends is ended by CPython before 3.14,
// through pthread_exit. That unwinds the stack, and the first frame that is noexcept, such as a
// destructor or nanobind's dispatch, would abort the process. Here such a thread stays where it is
// until the process has ended, as it does in CPython 3.14. Any thread.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace mlc_native::bindings {

// Calls `take`, which takes the GIL. Does not return once the interpreter ends.
template <typename Take>
auto TakeGil(const Take& take) noexcept {
  try {
    return take();
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();
  }
}

// Requires: the GIL is held. It is released for the guard's life.
class ReleasedGil {
 public:
  ReleasedGil() noexcept : state_(PyEval_SaveThread()) {}
  ~ReleasedGil() {
    TakeGil([this] { PyEval_RestoreThread(state_); });
  }
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;

 private:
  PyThreadState* const state_;
};

// A binding with it runs without the GIL.
using ReleaseGil = nanobind::call_guard<ReleasedGil>;

// Holds the GIL for its life.
class AcquiredGil {
 public:
  AcquiredGil() noexcept : state_(TakeGil([] { return PyGILState_Ensure(); })) {}
  ~AcquiredGil() { PyGILState_Release(state_); }
  AcquiredGil(const AcquiredGil&) = delete;
  AcquiredGil& operator=(const AcquiredGil&) = delete;

 private:
  const PyGILState_STATE state_;
};

}  // namespace mlc_native::bindings
