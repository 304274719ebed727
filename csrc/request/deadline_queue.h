// DeadlineQueue holds the live requests that have a deadline, in the order of the deadlines.
//
// Requests without a deadline are not in it and cost nothing. A request is in it once, with the
// earlier of its two deadlines: the one for its start, which no longer counts after the start, and
// the one for its end. Equal deadlines are ordered by arrival. Engine's thread only.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "observe/metrics.h"
#include "request/request_state.h"

namespace mlc_native {

class DeadlineQueue {
 public:
  // May throw bad_alloc; the other functions do not throw.
  void Add(RequestState& rstate);
  void Remove(const RequestState& rstate);
  // Requires: rstate.started is not set yet.
  void Started(const RequestState& rstate);
  // Removes and returns a request whose deadline has passed; null if there is none.
  RequestState* PopExpired(TimePoint now);

  bool empty() const { return due_.empty(); }
  int64_t size() const { return static_cast<int64_t>(due_.size()); }
  void Clear() { due_.clear(); }

 private:
  using Key = std::pair<TimePoint, int64_t>;  // deadline, arrival
  std::map<Key, RequestState*> due_;
};

}  // namespace mlc_native
