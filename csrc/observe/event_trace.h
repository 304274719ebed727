// EventTraceRecorder records the events of each request as Chrome trace JSON (chrome://tracing,
// Perfetto).
//
// "start X" and "finish X" form a span; any other name is an instant. The recorder is a ring of
// `capacity` events; the oldest are dropped first and counted, and so is an event for which there
// is no memory, because what is traced must not fail for it. A dump is always balanced: a "finish"
// without its dropped "start" is left out, and an open span ends at the time of the dump. Spans of
// a row (tid) nest, as the format requires. The row of a request has all its instants, and the
// spans of a name unless they overlap others there without nesting, such as a callback that another
// thread runs while the request decodes: these are in a row "<request id> (<name>)".
// Thread-safe. Recording costs a fraction of a microsecond, and a dump holds the lock only while it
// copies the ring.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "mlc_native/detail/export.h"

namespace mlc_native {

class MLC_NATIVE_PRIVATE_API EventTraceRecorder {
 public:
  static constexpr int64_t kDefaultCapacity = 1 << 16;  // events
  // Throws InvalidConfig unless capacity is in [1, 2^24].
  explicit EventTraceRecorder(int64_t capacity = kDefaultCapacity);
  ~EventTraceRecorder();

  void AddEvent(std::string_view request_id, std::string_view event) noexcept;
  // Records the same event for several requests, at the same time.
  void AddEvent(std::span<const std::string_view> request_ids, std::string_view event) noexcept;

  // Returns a JSON array of {"name","ph","ts","pid","tid"}, grouped by request in the order of
  // their first events, then by row (tid), and sorted by time within a row. ts is wall-clock time
  // in microseconds. A name ends with its number among the request's events of that name: "decode
  // (3)".
  std::string DumpJSON() const;
  int64_t num_dropped() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlc_native
