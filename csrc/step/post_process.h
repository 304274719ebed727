// PostProcess turns the tokens of collected steps into text and stream outputs, ends sequences and
// removes finished requests from the engine. Engine's thread only.
#pragma once

#include "step/step_context.h"

namespace mlc_native {

// Processes the dirty requests and appends to postproc_workspace.outputs, which the caller
// delivers. A sequence ends at the first of: stop string, stop token, max_tokens,
// max_sequence_length; its pages and id are free at once. Queues, states, ids and pages are
// consistent afterwards. If it throws (no memory), it can be called again.
void PostProcess(StepContext& context);

}  // namespace mlc_native
