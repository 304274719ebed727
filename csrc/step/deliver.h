// Hands outputs to the callback, and answers requests that need no forward. Engine's thread only.
#pragma once

#include "step/step_context.h"

namespace mlc_native {

enum class FinishReason;
struct EngineGauges;
struct Request;

// Calls the callback with all outputs of postproc_workspace, if there are any. The state is
// consistent by then: the callback may throw, and it may call the engine.
void DeliverOutputs(StepContext& context);

// Ends every sequence of the request without tokens: with "length" for max_tokens == 0, with "stop"
// for a grammar that allows only the empty answer.
void AnswerEmpty(StepContext& context, const Request& request, FinishReason reason);

// Answers special_request "query_engine_metrics": the engine's metrics as usage.
void AnswerWithMetrics(StepContext& context, const Request& request, const EngineGauges& gauges);

}  // namespace mlc_native
