// After a step: new tokens become text and stream outputs, sequences that end give back pages and
// ids at once, finished requests leave the engine with their final output. Engine's thread only.
#pragma once

#include "step/action.h"

namespace mlc_native {

// Looks at the requests with news and appends to postproc_workspace.outputs. A sequence ends by the
// first of: stop string, stop token, max_tokens, max_sequence_length. Queues, states, ids and pages
// are consistent afterwards; the caller delivers the outputs. When it throws (no memory), it can be
// called again.
void PostProcess(const EngineState& estate, const EngineParts& parts);

}  // namespace mlc_native
