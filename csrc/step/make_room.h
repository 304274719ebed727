// Frees the pages that the running sequences need for their next tokens. Engine's thread only.
#pragma once

#include "step/step_context.h"

namespace mlc_native {

class StepPipeline;

// When pages run out, frees them in this order: collect steps in flight (sequences that finish give
// theirs back), drop a partly prefilled prompt, preempt the sequences that run, the last one of the
// lowest priority first. If every sequence is preempted, nothing runs afterwards.
void MakeRoomForDecode(StepContext& context, StepPipeline& steps);

// Drops what waiting prompts have computed until there are slots of states for another sequence.
void DropExcessProgress(StepContext& context, StepPipeline& steps);

}  // namespace mlc_native
