#include "step/step_trace.h"

#include <new>

#include "engine_state.h"
#include "observe/event_trace.h"
#include "request/scheduler.h"

namespace mlc_native {

void StepTrace::Add(const StepPlan& plan, std::string_view prefill_event,
                    std::string_view decode_event) noexcept {
  if (!is_on()) return;
  try {
    AddKind(plan, /*is_decode=*/false, prefill_event);
    AddKind(plan, /*is_decode=*/true, decode_event);
  } catch (const std::bad_alloc&) {
    return;
  }
}

// Each request of the plan once; its slices of one kind follow each other.
void StepTrace::AddKind(const StepPlan& plan, bool is_decode, std::string_view event) {
  ids_.clear();
  const RequestState* last = nullptr;
  for (const PlannedSlice& slice : plan.slices) {
    if (slice.is_decode != is_decode || slice.entry->rstate == last) continue;
    last = slice.entry->rstate;
    ids_.push_back(last->request->id);
  }
  if (!ids_.empty()) recorder_->AddEvent(ids_, event);
}

}  // namespace mlc_native
