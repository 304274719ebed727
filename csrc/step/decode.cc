#include "step/decode.h"

#include "step/sequence_life.h"
#include "step/step_pipeline.h"

namespace mlc_native {

bool DecodeAction::Step(const EngineState& estate) {
  do {
    if (estate->GetRunningRequestStateEntries().empty()) return false;
    MakeRoom(estate);
    plan_.Clear();
    PlanDecode(estate, parts_.limits.prefill_chunk_size, &plan_);
    if (plan_.empty()) return false;
  } while (parts_.steps->Submit(estate, plan_) == StepPipeline::Outcome::kPlanAnew);
  return true;
}

void DecodeAction::MakeRoom(const EngineState& estate) {
  while (PagesNeededForDecode(estate, *parts_.kv) > parts_.kv->pool().num_available()) {
    if (parts_.steps->CatchUp(estate)) continue;
    if (DropPrefillProgress(estate, parts_)) continue;
    // Even the last one: its length fits into the pool, but not always a copy of a page that it
    // shares. It waits then for a prefill that goes without the shared page.
    Preempt(estate, parts_, *PreemptionVictim(estate));
  }
}

}  // namespace mlc_native
