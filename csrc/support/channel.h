// Channel<T>: the one queue between threads. Many producers, one or more consumers.
//
// Push never blocks; PopAll takes everything that has arrived in one go under one short lock. After
// Close, Push is refused and consumers drain what is left, then see `closed`. All waking happens
// after the state changed under the same mutex, so no wake-up can be lost.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace mlc_native {

template <typename T>
class Channel {
 public:
  // False when the channel is closed; the item is then untouched.
  bool Push(T&& item) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (closed_) return false;
      items_.push_back(std::move(item));
    }
    arrived_.notify_one();
    return true;
  }

  // Replaces *items by what has arrived, without waiting. False once closed and drained.
  bool TryPopAll(std::vector<T>* items) {
    items->clear();
    std::lock_guard<std::mutex> lock(mutex_);
    items->swap(items_);
    return !closed_ || !items->empty();
  }

  // Waits until something has arrived or the channel is closed. False once closed and drained.
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
