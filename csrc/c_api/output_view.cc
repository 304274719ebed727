#include "c_api/output_view.h"

#include <algorithm>
#include <utility>

namespace mlc_native::c_api {
namespace {

int32_t FinishCode(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return MLCN_FINISH_STOP;
    case FinishReason::kLength:
      return MLCN_FINISH_LENGTH;
    case FinishReason::kAbort:
      return MLCN_FINISH_ABORT;
    case FinishReason::kError:
      return MLCN_FINISH_ERROR;
    case FinishReason::kTimeout:
      return MLCN_FINISH_TIMEOUT;
  }
  return MLCN_FINISH_ERROR;
}

bool HasSomething(const SequenceDelta& delta) {
  return !delta.token_ids.empty() || !delta.text.empty() || !delta.extra_prefix_string.empty() ||
         delta.finish_reason;
}

}  // namespace

OutputView::OutputView(RequestRef request) : request_(std::move(request)) {
  output_.size = sizeof(output_);
  output_.index = -1;
  output_.request = request_.get();
  output_.user_data = request_->user_data;
  output_.text = text_.c_str();
  output_.error_message = error_.c_str();
}

void OutputView::Append(const RequestRef& request, RequestStreamOutput output,
                        std::vector<std::unique_ptr<OutputView>>* views) {
  const auto add = [&]() -> OutputView& {
    views->emplace_back(new OutputView(request));
    return *views->back();
  };
  const PromptLogprobs* scored = output.prompt_logprobs ? &*output.prompt_logprobs : nullptr;
  for (size_t i = 0; i < output.group.size(); ++i) {
    if (!HasSomething(output.group[i]) && scored == nullptr) continue;
    OutputView& view = add();
    view.SetDelta(static_cast<int32_t>(i), std::move(output.group[i]), output.error_message);
    if (scored != nullptr) view.SetPromptLogprobs(*scored);
    scored = nullptr;
  }
  if (!output.usage) return;
  OutputView& view = add();
  view.output_.is_final = 1;
  view.SetUsage(*output.usage);
}

void OutputView::SetDelta(int32_t index, SequenceDelta delta, const std::string& error) {
  output_.index = index;
  text_ = delta.extra_prefix_string.empty() ? std::move(delta.text)
                                            : delta.extra_prefix_string + delta.text;
  output_.text = text_.c_str();
  output_.text_length = text_.size();
  tokens_ = std::move(delta.token_ids);
  output_.tokens = tokens_.data();
  output_.num_tokens = tokens_.size();
  if (!delta.logprobs.empty()) {
    logprobs_ = std::make_unique<Logprobs>(delta.logprobs);
    output_.logprobs = &logprobs_->view;
  }
  if (!delta.finish_reason) return;
  output_.finish_reason = FinishCode(*delta.finish_reason);
  if (*delta.finish_reason != FinishReason::kError) return;
  error_ = error;
  output_.error_message = error_.c_str();
}

void OutputView::SetPromptLogprobs(const PromptLogprobs& logprobs) {
  prompt_logprobs_ = std::make_unique<Logprobs>(logprobs.tokens);
  output_.prompt_logprobs = &prompt_logprobs_->view;
}

void OutputView::SetUsage(const RequestUsage& usage) {
  usage_ =
      std::make_unique<mlcn_usage>(mlcn_usage{.size = sizeof(mlcn_usage),
                                              .prompt_tokens = usage.prompt_tokens,
                                              .completion_tokens = usage.completion_tokens,
                                              .cached_tokens = usage.cached_tokens,
                                              .jump_forward_tokens = usage.jump_forward_tokens,
                                              .draft_tokens = usage.draft_tokens,
                                              .accepted_draft_tokens = usage.accepted_draft_tokens,
                                              .num_preemptions = usage.num_preemptions,
                                              .queue_time = usage.queue_time_s,
                                              .time_to_first_token = usage.ttft_s,
                                              .inter_token_latency = usage.inter_token_latency_s,
                                              .end_to_end_latency = usage.end_to_end_latency_s});
  output_.usage = usage_.get();
}

OutputView::Logprobs::Logprobs(const std::vector<SampleResult>& results) {
  size_t num_top = 0;
  for (const SampleResult& result : results)
    num_top = std::max(num_top, result.top_logprobs.size());
  top_tokens.assign(results.size() * num_top, -1);
  top_values.assign(results.size() * num_top, 0.0f);
  for (size_t i = 0; i < results.size(); ++i) {
    tokens.push_back(results[i].token.token_id);
    values.push_back(results[i].token.logprob);
    for (size_t j = 0; j < results[i].top_logprobs.size(); ++j) {
      top_tokens[i * num_top + j] = results[i].top_logprobs[j].token_id;
      top_values[i * num_top + j] = results[i].top_logprobs[j].logprob;
    }
  }
  view = {.size = sizeof(view),
          .count = tokens.size(),
          .tokens = tokens.data(),
          .values = values.data(),
          .num_top = num_top,
          .top_tokens = top_tokens.data(),
          .top_values = top_values.data()};
}

}  // namespace mlc_native::c_api
