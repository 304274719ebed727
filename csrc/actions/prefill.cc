#include "actions/prefill.h"

namespace mlc_native {

bool PrefillAction::Step(const EngineState& estate) {
  do {
    PlanPrefill(estate, *parts_.kv, parts_.limits, &plan_);
    if (plan_.empty()) return false;
  } while (forward_.Run(estate, plan_) == ForwardStep::Outcome::kPlanAnew);
  return true;
}

}  // namespace mlc_native
