#include "observe/step_profiler.h"

#include <algorithm>

#include "support/json.h"

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
  JsonWriter json;
  json.BeginObject().Add("wall_s", SecondsSince(start_, now_())).Name("phases").BeginObject();
  for (size_t i = 0; i < kNumPhases; ++i) {
    const Times& times = times_[i];
    json.Name(kNames[i]).BeginObject();
    json.Add("count", times.count).Add("sum_s", times.sum_s).Add("max_s", times.max_s);
    json.EndObject();
  }
  return json.EndObject().EndObject().Take();
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
