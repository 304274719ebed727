// DeadlineQueue: the live requests that have a deadline, in the order in which they are due.
//
// Requests without one are not in it, so they cost nothing. A request is in it once, under the
// earlier of its two deadlines: the one for its start, which no longer counts when it has started,
// and the one for its end. Ties are broken by arrival. Engine's thread only.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "observe/metrics.h"
#include "request/request_state.h"

namespace mlc_native {

class DeadlineQueue {
 public:
  // May throw bad_alloc, the others do not.
  void Add(RequestState& rstate);
  void Remove(const RequestState& rstate);
  // Call before rstate.started is set.
  void Started(const RequestState& rstate);
  // Takes out a request whose deadline has come; null when there is none.
  RequestState* PopExpired(TimePoint now);

  bool empty() const { return due_.empty(); }
  int64_t size() const { return static_cast<int64_t>(due_.size()); }
  void Clear() { due_.clear(); }

 private:
  using Key = std::pair<TimePoint, int64_t>;  // when, arrival
  std::map<Key, RequestState*> due_;
};

}  // namespace mlc_native
