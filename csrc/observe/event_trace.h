// EventTraceRecorder: what happened to each request and when, as Chrome trace JSON
// (chrome://tracing, Perfetto).
//
// Events are named "start X", "finish X" (a span) or anything else (an instant). Bounded: a ring of
// `capacity` events, the oldest are dropped first and counted. A dump is always balanced: a
// "finish" whose "start" was dropped is left out, a span that is still open is closed at the time
// of the dump. Thread-safe; recording costs a fraction of a microsecond, and a dump holds the lock
// only while it copies the ring.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace mlc_native {

class EventTraceRecorder {
 public:
  static constexpr int64_t kDefaultCapacity = 1 << 16;  // events
  // Throws InvalidConfig unless capacity is in [1, 2^24].
  explicit EventTraceRecorder(int64_t capacity = kDefaultCapacity);
  ~EventTraceRecorder();

  void AddEvent(std::string_view request_id, std::string_view event);
  // The same event of several requests, at the same time.
  void AddEvent(std::span<const std::string_view> request_ids, std::string_view event);

  // JSON array of {"name","ph","ts","pid","tid"}, grouped by request (tid) in the order of their
  // first events, sorted by time within a request. ts is in microseconds of wall clock. A name ends
  // with its number among the request's events of that name: "decode (3)".
  std::string DumpJSON() const;
  int64_t num_dropped() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlc_native
