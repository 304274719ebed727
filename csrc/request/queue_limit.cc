#include "request/queue_limit.h"

#include "support/error.h"

namespace mlc_native {

QueueLimit::Slot QueueLimit::Enter(const std::shared_ptr<QueueLimit>& queue) {
  const int64_t limit = queue->limit_;
  int64_t length = queue->length_;
  do {
    if (limit == kUnlimited || length < limit) continue;
    ++queue->num_refused_;
    throw QueueFull(length, limit);
  } while (!queue->length_.compare_exchange_weak(length, length + 1));
  return Slot(queue);
}

void QueueLimit::Slot::Release() {
  if (queue_ == nullptr) return;
  --queue_->length_;
  queue_.reset();
}

}  // namespace mlc_native
