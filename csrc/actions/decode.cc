#include "actions/decode.h"

#include "actions/sequence_life.h"
#include "support/check.h"

namespace mlc_native {

bool DecodeAction::Step(const EngineState& estate) {
  do {
    if (estate->GetRunningRequestStateEntries().empty()) return false;
    MakeRoom(estate);
    plan_.Clear();
    PlanDecode(estate, parts_.limits.prefill_chunk_size, &plan_);
  } while (forward_.Run(estate, plan_) == ForwardStep::Outcome::kPlanAnew);
  return true;
}

void DecodeAction::MakeRoom(const EngineState& estate) {
  while (PagesNeededForDecode(estate, *parts_.kv) > parts_.kv->pool().num_free()) {
    if (DropPrefillProgress(estate, parts_)) continue;
    // One sequence alone always fits: its length is limited to what the pool holds.
    MLC_CHECK(estate->GetRunningRequestStateEntries().size() > 1)
        << "a lone sequence does not fit into " << parts_.kv->pool().num_total() << " pages";
    Preempt(estate, parts_, *PreemptionVictim(estate));
  }
}

}  // namespace mlc_native
