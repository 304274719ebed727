// EventTraceRecorder: what happened to each request and when, as Chrome trace JSON
// (chrome://tracing, Perfetto).
//
// Events are named "start X", "finish X" (a span) or anything else (an instant). Bounded: a ring of
// kDefaultCapacity events, the oldest are dropped first and counted; a dump is always balanced (a
// span whose start was dropped or whose finish has not come is left out or closed at the time of
// the dump). Thread-safe; recording costs well under a microsecond and a dump never blocks
// recording for long.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mlc_native {

class EventTraceRecorder {
 public:
  static constexpr int64_t kDefaultCapacity = 1 << 16;  // events
  explicit EventTraceRecorder(int64_t capacity = kDefaultCapacity);
  ~EventTraceRecorder();

  void AddEvent(std::string_view request_id, std::string_view event);
  void AddEvent(std::span<const std::string_view> request_ids, std::string_view event);

  // JSON array of {"name","ph","ts","pid","tid"}; ts in microseconds of wall clock, sorted within a
  // request.
  std::string DumpJSON() const;
  int64_t num_dropped() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Records "start name" now and "finish name" at the end of the scope. A null recorder costs one
// branch.
class TraceScope {
 public:
  TraceScope(EventTraceRecorder* recorder, std::string_view request_id, std::string_view name);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  EventTraceRecorder* const recorder_;
  const std::string_view request_id_;
  const std::string_view name_;
};

}  // namespace mlc_native
