// Mutex, MutexLock, CondVar: std::mutex, std::lock_guard and std::condition_variable with the
// annotations by which clang checks that guarded members are only used under their lock
// (support/thread_annotations.h).
//
// Waiting is a loop around CondVar::Wait, not a predicate: clang does not look into a lambda with
// the locks of its caller.
#pragma once

#include <condition_variable>
#include <mutex>

#include "support/thread_annotations.h"

namespace mlc_native {

class MLC_CAPABILITY("mutex") Mutex {
 public:
  void Lock() MLC_ACQUIRE() { mutex_.lock(); }
  void Unlock() MLC_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex for the length of a scope.
class MLC_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) MLC_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() MLC_RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // Gives the mutex back, sleeps until it is notified (or for no reason), and takes it again.
  void Wait(Mutex& mutex) MLC_REQUIRES(mutex) MLC_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }
  // The same, but sleeps no longer than until `deadline`. Returns false if that was reached.
  template <typename TimePoint>
  bool WaitUntil(Mutex& mutex, TimePoint deadline)
      MLC_REQUIRES(mutex) MLC_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = changed_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void NotifyOne() { changed_.notify_one(); }
  void NotifyAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace mlc_native
