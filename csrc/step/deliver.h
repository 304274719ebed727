// Hands outputs to the callback, and answers requests that need no forward. Engine's thread only.
#pragma once

#include "engine_state.h"
#include "observe/event_trace.h"

namespace mlc_native {

// Calls the callback with all outputs of postproc_workspace, if there are any. Everything is
// consistent by then: the callback may throw, and it may call the engine. `trace` may be null.
void DeliverOutputs(const EngineState& estate, EventTraceRecorder* trace);

// Every sequence ends without tokens: with "length" for max_tokens == 0, with "stop" for a grammar
// of the empty answer alone.
void AnswerEmpty(const EngineState& estate, const Request& request, FinishReason reason,
                 TimePoint now);

// special_request "query_engine_metrics": the engine's metrics as usage.
void AnswerWithMetrics(const EngineState& estate, const Request& request,
                       const EngineGauges& gauges);

}  // namespace mlc_native
