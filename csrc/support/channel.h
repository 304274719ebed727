// Channel<T> is the queue between threads: any number of producers and consumers.
//
// Push never blocks. PopAll takes all queued items at once, under one short lock. After Close, Push
// fails, and consumers drain the remaining items and then see that the channel is closed. Waiters
// are notified after the state changed under the same mutex, so no wake-up is lost.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace mlc_native {

template <typename T>
class Channel {
 public:
  // Returns false if the channel is closed, and leaves the item untouched.
  bool Push(T&& item) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (closed_) return false;
      items_.push_back(std::move(item));
    }
    arrived_.notify_one();
    return true;
  }

  // Replaces *items by all queued items without waiting. False once the channel is closed and
  // drained.
  bool TryPopAll(std::vector<T>* items) {
    items->clear();
    std::lock_guard<std::mutex> lock(mutex_);
    items->swap(items_);
    return !closed_ || !items->empty();
  }

  // The same, but waits until an item is queued or the channel is closed.
  bool WaitPopAll(std::vector<T>* items) {
    items->clear();
    std::unique_lock<std::mutex> lock(mutex_);
    arrived_.wait(lock, [this] { return closed_ || !items_.empty(); });
    items->swap(items_);
    return !closed_ || !items->empty();
  }

  void Close() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
    }
    arrived_.notify_all();
  }

  bool closed() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return closed_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  // Guarded by mutex_.
  std::vector<T> items_;
  bool closed_ = false;
};

}  // namespace mlc_native
