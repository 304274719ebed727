#include "step/prefill.h"

#include "step/step_pipeline.h"

namespace mlc_native {

bool PrefillAction::Step(const EngineState& estate) {
  do {
    PlanPrefill(estate, *parts_.kv, parts_.limits, &plan_);
    if (plan_.empty()) return false;
  } while (parts_.steps->Submit(estate, plan_) == StepPipeline::Outcome::kPlanAnew);
  return true;
}

}  // namespace mlc_native
