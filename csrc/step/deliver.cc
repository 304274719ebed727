#include "step/deliver.h"

#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine_state.h"
#include "observe/event_trace.h"

namespace mlc_native {
namespace {

// A "callback" span for each request that the outputs are of. Without memory there is no span: the
// outputs go on their way all the same.
class CallbackTrace {
 public:
  CallbackTrace(EventTraceRecorder* recorder,
                const std::vector<RequestStreamOutput>& outputs) noexcept
      : recorder_(recorder) {
    if (recorder_ == nullptr) return;
    try {
      for (const RequestStreamOutput& output : outputs) {
        if (ids_.empty() || ids_.back() != output.request_id) ids_.push_back(output.request_id);
      }
    } catch (const std::bad_alloc&) {
      ids_.clear();
    }
    Record("start callback");
  }
  ~CallbackTrace() { Record("finish callback"); }
  CallbackTrace(const CallbackTrace&) = delete;
  CallbackTrace& operator=(const CallbackTrace&) = delete;

 private:
  void Record(std::string_view event) const noexcept {
    if (ids_.empty()) return;
    try {
      recorder_->AddEvent(std::vector<std::string_view>(ids_.begin(), ids_.end()), event);
    } catch (const std::bad_alloc&) {
      return;
    }
  }
  EventTraceRecorder* const recorder_;
  std::vector<std::string> ids_;
};

}  // namespace

void DeliverOutputs(StepContext& context) {
  std::vector<RequestStreamOutput> outputs;
  outputs.swap(context.state.postproc_workspace.outputs);
  if (outputs.empty() || !context.state.request_stream_callback_) return;
  const CallbackTrace span(context.trace, outputs);
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
