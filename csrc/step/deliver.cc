#include "step/deliver.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mlc_native {
namespace {

// A "callback" span for each request that the outputs are of.
class CallbackTrace {
 public:
  CallbackTrace(EventTraceRecorder* recorder, const std::vector<RequestStreamOutput>& outputs)
      : recorder_(recorder) {
    if (recorder_ == nullptr) return;
    for (const RequestStreamOutput& output : outputs) {
      if (ids_.empty() || ids_.back() != output.request_id) ids_.push_back(output.request_id);
    }
    Record("start callback");
  }
  ~CallbackTrace() {
    if (recorder_ != nullptr) Record("finish callback");
  }
  CallbackTrace(const CallbackTrace&) = delete;
  CallbackTrace& operator=(const CallbackTrace&) = delete;

 private:
  void Record(std::string_view event) const {
    recorder_->AddEvent(std::vector<std::string_view>(ids_.begin(), ids_.end()), event);
  }
  EventTraceRecorder* const recorder_;
  std::vector<std::string> ids_;
};

}  // namespace

void DeliverOutputs(const EngineState& estate, EventTraceRecorder* trace) {
  std::vector<RequestStreamOutput> outputs;
  outputs.swap(estate->postproc_workspace.outputs);
  if (outputs.empty() || !estate->request_stream_callback_) return;
  const CallbackTrace span(trace, outputs);
  estate->request_stream_callback_(std::move(outputs));
}

void AnswerEmpty(const EngineState& estate, const Request& request, FinishReason reason,
                 TimePoint now) {
  RequestStreamOutput empty;
  RequestStreamOutput final;
  empty.request_id = final.request_id = request.id;
  empty.group.resize(request.generation_cfg.n);
  for (SequenceDelta& delta : empty.group) delta.finish_reason = reason;
  RequestMetrics metrics;
  metrics.prompt_tokens = request.prompt_len();
  metrics.add_time_point = metrics.finish_time_point = now;
  final.request_final_usage_json_str = metrics.UsageJSONString();
  // Both outputs or, when there is no memory and the request is refused, none.
  estate->postproc_workspace.outputs.reserve(estate->postproc_workspace.outputs.size() + 2);
  estate->metrics.RequestFinished(metrics, ToString(reason));
  estate->postproc_workspace.outputs.push_back(std::move(empty));
  estate->postproc_workspace.outputs.push_back(std::move(final));
}

void AnswerWithMetrics(const EngineState& estate, const Request& request,
                       const EngineGauges& gauges) {
  RequestStreamOutput final;
  final.request_id = request.id;
  final.request_final_usage_json_str = estate->metrics.AsUsageJSONString(gauges);
  estate->postproc_workspace.outputs.push_back(std::move(final));
}

}  // namespace mlc_native
