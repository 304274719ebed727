// StepTrace: events of a step in the trace, for each request of its plan. A null recorder costs a
// look at it; without memory there are no events. Engine's thread only.
#pragma once

#include <string_view>
#include <vector>

namespace mlc_native {

class EventTraceRecorder;
struct StepPlan;

class StepTrace {
 public:
  explicit StepTrace(EventTraceRecorder* recorder) : recorder_(recorder) {}

  bool is_on() const { return recorder_ != nullptr; }
  void Add(const StepPlan& plan, std::string_view prefill_event,
           std::string_view decode_event) noexcept;

 private:
  void AddKind(const StepPlan& plan, bool is_decode, std::string_view event);

  EventTraceRecorder* const recorder_;
  std::vector<std::string_view> ids_;
};

}  // namespace mlc_native
