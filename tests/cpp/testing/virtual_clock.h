// VirtualClock is a clock that only the test advances. One thread.
#pragma once

#include <chrono>
#include <memory>

#include "observe/metrics.h"

namespace mlc_native::testing {

class VirtualClock {
 public:
  void Advance(double seconds) {
    *now_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  TimePoint now() const { return *now_; }
  // For EngineOptions::now; may outlive the clock.
  ClockFunction function() const {
    return [now = now_] { return *now; };
  }

 private:
  // Not the epoch, which means "not reached" in RequestMetrics.
  std::shared_ptr<TimePoint> now_ =
      std::make_shared<TimePoint>(TimePoint() + std::chrono::seconds(1));
};

}  // namespace mlc_native::testing
