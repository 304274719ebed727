// The time of engines: steady, never goes back. Plain types; any thread.
#pragma once

#include <chrono>
#include <functional>

namespace mlc_native {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
inline constexpr TimePoint kNoDeadline = TimePoint::max();
// Where an engine takes the time from.
using ClockFunction = std::function<TimePoint()>;

}  // namespace mlc_native
