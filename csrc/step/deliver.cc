#include "step/deliver.h"

#include <utility>
#include <vector>

#include "engine_state.h"
#include "observe/callback_trace.h"

namespace mlc_native {

void DeliverOutputs(StepContext& context) {
  std::vector<RequestStreamOutput> outputs;
  outputs.swap(context.state.postproc_workspace.outputs);
  if (outputs.empty() || !context.state.request_stream_callback_) return;
  const CallbackTrace span(context.trace, "callback", outputs);
  context.state.request_stream_callback_(std::move(outputs));
}

void AnswerEmpty(StepContext& context, const Request& request, FinishReason reason) {
  RequestStreamOutput empty;
  RequestStreamOutput final;
  empty.request_id = final.request_id = request.id;
  empty.group.resize(request.generation_cfg.n);
  for (SequenceDelta& delta : empty.group) delta.finish_reason = reason;
  RequestMetrics metrics;
  metrics.prompt_tokens = request.prompt_len();
  metrics.add_time_point = metrics.finish_time_point = context.now();
  final.usage = metrics.Usage();
  // Both outputs or, when there is no memory and the request is refused, none.
  std::vector<RequestStreamOutput>& outputs = context.state.postproc_workspace.outputs;
  outputs.reserve(outputs.size() + 2);
  context.state.metrics.RequestFinished(metrics, ToString(reason));
  outputs.push_back(std::move(empty));
  outputs.push_back(std::move(final));
}

void AnswerWithMetrics(StepContext& context, const Request& request, const EngineGauges& gauges) {
  RequestStreamOutput final;
  final.request_id = request.id;
  final.usage.emplace().engine_metrics_json = context.state.metrics.AsJSONString(gauges);
  context.state.postproc_workspace.outputs.push_back(std::move(final));
}

}  // namespace mlc_native
