#include "observe/step_profiler.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace mlc_native {
namespace {

double SecondsSince(TimePoint start, TimePoint now) {
  return std::chrono::duration<double>(now - start).count();
}

}  // namespace

void StepProfiler::Start() {
  running_ = true;
  start_ = now_();
  times_ = {};
}

std::string StepProfiler::Stop() {
  static constexpr std::array<const char*, kNumPhases> kNames = {
      "step", "reserve", "forward", "sample", "collect", "commit", "post_process", "deliver"};
  running_ = false;
  nlohmann::ordered_json phases = nlohmann::ordered_json::object();
  for (size_t i = 0; i < kNumPhases; ++i) {
    const Times& times = times_[i];
    phases[kNames[i]] = {{"count", times.count}, {"sum_s", times.sum_s}, {"max_s", times.max_s}};
  }
  return nlohmann::ordered_json{{"wall_s", SecondsSince(start_, now_())},
                                {"phases", std::move(phases)}}
      .dump();
}

void StepProfiler::Add(StepPhase phase, TimePoint start) {
  if (!running_) return;
  const double seconds = SecondsSince(start, now_());
  Times& times = times_[static_cast<size_t>(phase)];
  ++times.count;
  times.sum_s += seconds;
  times.max_s = std::max(times.max_s, seconds);
}

}  // namespace mlc_native
