// Threads of the library in a process that belongs to somebody else. Each has a name, which
// debuggers and top show, computes in the default floating point environment, whichever the host
// has, and takes no signal that is meant for the process: handlers of the host run on threads of
// the host, and a signal that the host waits for (sigwait, signalfd) is not lost. Signals that a
// thread causes itself (SIGSEGV and the like) and SIGPROF, which profilers send to the thread that
// runs, stay as they are. Any thread.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <array>
#include <cstddef>
#include <thread>
#include <utility>

#include "support/float_environment.h"

namespace mlc_native {

// Blocks those signals for its life. A thread that is created meanwhile keeps them blocked.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t set;
    sigfillset(&set);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF}) {
      sigdelset(&set, own);
    }
    pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Runs `body` on a new thread named "mlcn-" and what it does, at most 15 characters in all. Throws
// std::system_error if no thread can be started.
template <size_t kSize, typename Body>
std::thread StartThread(const char (&name)[kSize], Body body) {
  static_assert(kSize <= 16, "Linux keeps 15 characters");
  const SignalsBlocked blocked;
  return std::thread([name = std::to_array(name), body = std::move(body)]() mutable {
    pthread_setname_np(pthread_self(), name.data());
    const DefaultFloatEnvironment floats;
    body();
  });
}

}  // namespace mlc_native
