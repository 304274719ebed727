// Channel<T> is the queue between threads: any number of producers and consumers.
//
// Push never blocks. PopAll takes all queued items at once, under one short lock. After Close, Push
// fails, and consumers drain the remaining items and then see that the channel is closed. Waiters
// are notified after the state changed under the same mutex, so no wake-up is lost.
#pragma once

#include <utility>
#include <vector>

#include "support/mutex.h"

namespace mlc_native {

template <typename T>
class Channel {
 public:
  // Returns false if the channel is closed, and leaves the item untouched.
  bool Push(T&& item) {
    {
      const MutexLock lock(mutex_);
      if (closed_) return false;
      items_.push_back(std::move(item));
    }
    arrived_.NotifyOne();
    return true;
  }

  // Replaces *items by all queued items without waiting. False once the channel is closed and
  // drained.
  bool TryPopAll(std::vector<T>* items) {
    items->clear();
    const MutexLock lock(mutex_);
    items->swap(items_);
    return !closed_ || !items->empty();
  }

  // The same, but waits until an item is queued or the channel is closed.
  bool WaitPopAll(std::vector<T>* items) {
    items->clear();
    const MutexLock lock(mutex_);
    while (!closed_ && items_.empty()) arrived_.Wait(mutex_);
    items->swap(items_);
    return !closed_ || !items->empty();
  }

  void Close() {
    {
      const MutexLock lock(mutex_);
      closed_ = true;
    }
    arrived_.NotifyAll();
  }

  bool closed() const {
    const MutexLock lock(mutex_);
    return closed_;
  }

 private:
  mutable Mutex mutex_;
  CondVar arrived_;
  std::vector<T> items_ MLC_GUARDED_BY(mutex_);
  bool closed_ MLC_GUARDED_BY(mutex_) = false;
};

}  // namespace mlc_native
