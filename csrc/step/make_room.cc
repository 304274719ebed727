#include "step/make_room.h"

#include "engine_state.h"
#include "kv/paged_kv_cache.h"
#include "request/scheduler.h"
#include "step/sequence_life.h"
#include "step/step_pipeline.h"

namespace mlc_native {

void MakeRoomForDecode(StepContext& context, StepPipeline& steps) {
  while (PagesNeededForDecode(context.state, context.kv) > context.kv.pool().num_available()) {
    if (steps.CatchUp()) continue;
    if (DropPrefillProgress(context)) continue;
    // Even the last one: its tokens fit into the pool, but a copy of a page that it shares may not.
    // It then waits for a prefill that does without the shared page.
    Preempt(context, *PreemptionVictim(context.state));
  }
}

void DropExcessProgress(StepContext& context, StepPipeline& steps) {
  while (context.kv.has_states() && context.kv.num_new_sequences() <= 0) {
    if (!steps.CatchUp() && !DropLastProgress(context)) return;
  }
}

}  // namespace mlc_native
