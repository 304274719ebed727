// StepProfiler: where the time of steps goes, phase by phase. Off until it is started; then two
// reads of the clock per phase.
//
// Phases do not overlap except kStep, which holds all others; what is left of it is planning and
// bookkeeping. Engine's thread only.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "support/clock.h"

namespace mlc_native {

enum class StepPhase {
  kStep,
  kReserve,
  kForward,
  kSample,
  kCollect,
  kCommit,
  kPostProcess,
  kDeliver
};

class StepProfiler {
 public:
  // Times one phase while it lives. `profiler` may be null.
  class Scope {
   public:
    Scope(StepProfiler* profiler, StepPhase phase)
        : profiler_(profiler != nullptr && profiler->running_ ? profiler : nullptr), phase_(phase) {
      if (profiler_ != nullptr) start_ = profiler_->now_();
    }
    ~Scope() {
      if (profiler_ != nullptr) profiler_->Add(phase_, start_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    StepProfiler* const profiler_;
    const StepPhase phase_;
    TimePoint start_;
  };

  explicit StepProfiler(ClockFunction now) : now_(std::move(now)) {}

  // Forgets what it has.
  void Start();
  // {"wall_s", "phases": {"step": {"count", "sum_s", "max_s"}, ...}} since the start.
  std::string Stop();
  bool running() const { return running_; }

 private:
  struct Times {
    int64_t count = 0;
    double sum_s = 0;
    double max_s = 0;
  };
  static constexpr size_t kNumPhases = static_cast<size_t>(StepPhase::kDeliver) + 1;

  void Add(StepPhase phase, TimePoint start);

  const ClockFunction now_;
  bool running_ = false;
  TimePoint start_;
  std::array<Times, kNumPhases> times_;  // index = phase
};

}  // namespace mlc_native
