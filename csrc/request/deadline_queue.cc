#include "request/deadline_queue.h"

#include <algorithm>

namespace mlc_native {
namespace {

TimePoint NextDeadline(const RequestState& rstate) {
  return rstate.started ? rstate.deadline : std::min(rstate.queue_deadline, rstate.deadline);
}

}  // namespace

void DeadlineQueue::Add(RequestState& rstate) {
  const TimePoint deadline = NextDeadline(rstate);
  if (deadline != kNoDeadline) due_.emplace(Key(deadline, rstate.arrival), &rstate);
}

void DeadlineQueue::Remove(const RequestState& rstate) {
  if (!due_.empty()) due_.erase(Key(NextDeadline(rstate), rstate.arrival));
}

void DeadlineQueue::Started(const RequestState& rstate) {
  if (rstate.queue_deadline >= rstate.deadline) return;
  auto node = due_.extract(Key(rstate.queue_deadline, rstate.arrival));
  if (node.empty() || rstate.deadline == kNoDeadline) return;
  node.key().first = rstate.deadline;
  due_.insert(std::move(node));
}

RequestState* DeadlineQueue::PopExpired(TimePoint now) {
  if (due_.empty() || due_.begin()->first.first > now) return nullptr;
  RequestState* const expired = due_.begin()->second;
  due_.erase(due_.begin());
  return expired;
}

}  // namespace mlc_native
