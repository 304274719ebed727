#include "grammar/slow_calls.h"

#include <cxxabi.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "support/clock.h"
#include "support/library_thread.h"

// What names this library to the loader.
extern "C" __attribute__((visibility("hidden"))) char mlcn_this_library asm("__dso_handle");

namespace mlc_native {
namespace {

double ClockSeconds(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Of this thread alone. A thread of any other policy takes the core from it as soon as it wakes up;
// with a low priority (nice), it would wait for the end of a slice, which is many steps of a small
// model. Every thread may give up its priority.
void LowerPriority() {
  const sched_param none{};
  pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
}

// Keeps the library loaded until this thread has ended, also if the host unloads it: the loader
// leaves a library alone for which a thread has something to do at its end. A thread_local object
// would do the same and make the library depend on ld-linux.so.
void KeepLibrary() {
  abi::__cxa_thread_atexit([](void*) {}, nullptr, &mlcn_this_library);
}

}  // namespace

double ThreadCpuSeconds() { return ClockSeconds(CLOCK_THREAD_CPUTIME_ID); }

struct SlowCallThreads::State {
  struct Job {
    std::shared_ptr<SlowCall> call;
    Clock::time_point since;  // it waits or runs
    clockid_t clock = 0;      // of the thread that runs it
    double clock_start = 0;
  };

  Mutex mutex;
  CondVar changed;
  std::deque<Job> waiting MLC_GUARDED_BY(mutex);
  std::vector<const Job*> running MLC_GUARDED_BY(mutex);
  int num_threads MLC_GUARDED_BY(mutex) = 0;
  int num_starting MLC_GUARDED_BY(mutex) = 0;   // of those, the ones that may lose the library
  int64_t num_ended MLC_GUARDED_BY(mutex) = 0;  // calls
  bool exiting MLC_GUARDED_BY(mutex) = false;
};

SlowCallThreads::SlowCallThreads() : state_(std::make_shared<State>()) {
  const MutexLock lock(state_->mutex);
  state_->running.reserve(kMaxThreads);
}

SlowCallThreads::~SlowCallThreads() {
  State& state = *state_;
  const Clock::time_point deadline = Clock::now() + kPatience;
  const MutexLock lock(state.mutex);
  state.exiting = true;
  state.waiting.clear();
  state.changed.NotifyAll();
  while (state.num_threads > 0 && state.changed.WaitUntil(state.mutex, deadline)) {
  }
  while (state.num_starting > 0) state.changed.Wait(state.mutex);
}

void SlowCallThreads::Start(std::shared_ptr<SlowCall> call) {
  State& state = *state_;
  bool wants_thread = false;
  {
    const MutexLock lock(state.mutex);
    state.waiting.push_back({.call = call, .since = Clock::now()});
    const auto num_calls = static_cast<int>(state.waiting.size() + state.running.size());
    wants_thread = state.num_threads < std::min(num_calls, kMaxThreads);
    if (wants_thread) ++state.num_threads, ++state.num_starting;
  }
  state.changed.NotifyAll();
  if (!wants_thread) return;
  try {
    StartThread("mlcn-grammar", [shared = state_] { RunThread(shared); }).detach();
  } catch (const std::exception&) {  // no memory, or no more threads
    const MutexLock lock(state.mutex);
    --state.num_starting;
    if (--state.num_threads > 0) return;
    state.waiting.clear();  // there is no other thread than this one
    call->Execute(ThreadCpuSeconds);
  }
}

void SlowCallThreads::RunThread(const std::shared_ptr<State>& shared) {
  State& state = *shared;
  KeepLibrary();
  {
    const MutexLock lock(state.mutex);
    --state.num_starting;
  }
  state.changed.NotifyAll();
  LowerPriority();
  State::Job job;
  pthread_getcpuclockid(pthread_self(), &job.clock);
  for (;;) {
    {
      const MutexLock lock(state.mutex);
      while (state.waiting.empty() && !state.exiting) state.changed.Wait(state.mutex);
      if (state.exiting) {
        --state.num_threads;
        state.changed.NotifyAll();
        return;
      }
      job.call = std::move(state.waiting.front().call);
      job.since = Clock::now();
      job.clock_start = ThreadCpuSeconds();
      state.waiting.pop_front();
      state.running.push_back(&job);
    }
    job.call->Execute(ThreadCpuSeconds);
    {
      const MutexLock lock(state.mutex);
      std::erase(state.running, &job);
      ++state.num_ended;
    }
    state.changed.NotifyAll();
    job.call.reset();  // what it holds may take a while to free
  }
}

void SlowCallThreads::WaitForAny(std::chrono::microseconds at_most) {
  State& state = *state_;
  const Clock::time_point deadline = Clock::now() + at_most;
  const MutexLock lock(state.mutex);
  const int64_t num_ended = state.num_ended;
  while (state.num_ended == num_ended && state.changed.WaitUntil(state.mutex, deadline)) {
  }
}

SlowCalls::Progress SlowCallThreads::ProgressOf(const SlowCall& call) const {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  for (const State::Job* job : state.running) {
    if (job->call.get() == &call) {
      return {.cpu_seconds = ClockSeconds(job->clock) - job->clock_start};
    }
  }
  for (const State::Job& job : state.waiting) {
    if (job.call.get() != &call) continue;
    return {.waiting_seconds = std::chrono::duration<double>(Clock::now() - job.since).count()};
  }
  return {};
}

}  // namespace mlc_native
