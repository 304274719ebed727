// QueueLimit counts the requests that wait for their start and refuses those beyond the limit.
//
// A request holds a Slot from its submission until the first work on its tokens starts or until it
// ends without any: in the command channel and in the waiting queue. A slot gives itself back, so
// the count is exact whatever happens to the request. Preempted requests have started and do not
// count. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "support/clock.h"

namespace mlc_native {

class QueueLimit {
 public:
  static constexpr int64_t kUnlimited = -1;

  class Slot {
   public:
    Slot() = default;  // an empty slot
    Slot(Slot&& other) noexcept = default;
    Slot& operator=(Slot&& other) noexcept {
      Release();
      queue_ = std::move(other.queue_);
      return *this;
    }
    ~Slot() { Release(); }
    void Release();

   private:
    friend class QueueLimit;
    explicit Slot(std::shared_ptr<QueueLimit> queue) : queue_(std::move(queue)) {}
    std::shared_ptr<QueueLimit> queue_;
  };

  // Throws QueueFull.
  static Slot Enter(const std::shared_ptr<QueueLimit>& queue);

  // Applies to later requests; requests that already wait stay.
  void set_limit(int64_t limit) { limit_ = limit; }
  int64_t limit() const { return limit_; }
  int64_t length() const { return length_; }
  int64_t num_refused() const { return num_refused_; }
  void ResetCounters() { num_refused_ = 0; }

 private:
  std::atomic<int64_t> limit_ = kUnlimited;
  std::atomic<int64_t> length_ = 0;
  std::atomic<int64_t> num_refused_ = 0;
};

// When a request was accepted, and its place in the queue (empty if it needs none).
struct Submission {
  TimePoint time;
  QueueLimit::Slot slot;
};

}  // namespace mlc_native
