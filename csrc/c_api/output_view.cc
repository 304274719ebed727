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

// Makes one text of both. If it throws std::bad_alloc, nothing has changed.
void JoinText(SequenceDelta* delta) {
  if (delta->extra_prefix_string.empty()) return;
  delta->text.insert(0, delta->extra_prefix_string);
  delta->extra_prefix_string.clear();
}

}  // namespace

OutputView::OutputView(const RequestRef& request) : request_(request) {
  output_.size = sizeof(output_);
  output_.index = -1;
  output_.request = request_.get();
  output_.user_data = request_->user_data;
  output_.text = text_.c_str();
  output_.error_message = error_.c_str();
}

OutputView::OutputView(const RequestRef& request, const RequestStreamOutput& output, size_t index)
    : OutputView(request) {
  output_.index = static_cast<int32_t>(index);
  const SequenceDelta& delta = output.group[index];
  if (!delta.logprobs.empty()) {
    logprobs_ = std::make_unique<Logprobs>(delta.logprobs);
    output_.logprobs = &logprobs_->view;
  }
  if (!delta.finish_reason) return;
  output_.finish_reason = FinishCode(*delta.finish_reason);
  if (*delta.finish_reason != FinishReason::kError) return;
  error_ = output.error_message;
  output_.error_message = error_.c_str();
}

OutputView::OutputView(const RequestRef& request, const RequestUsage& usage) : OutputView(request) {
  output_.is_final = 1;
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

void OutputView::SetPromptLogprobs(const PromptLogprobs& logprobs) {
  prompt_logprobs_ = std::make_unique<Logprobs>(logprobs.tokens);
  output_.prompt_logprobs = &prompt_logprobs_->view;
}

void OutputView::TakeText(SequenceDelta* delta) noexcept {
  text_ = std::move(delta->text);
  output_.text = text_.c_str();
  output_.text_length = text_.size();
  tokens_ = std::move(delta->token_ids);
  output_.tokens = tokens_.data();
  output_.num_tokens = tokens_.size();
}

void OutputView::Append(const RequestRef& request, RequestStreamOutput* output,
                        OutputViews* views) {
  // What takes memory comes first.
  OutputViews made;
  bool has_scores = output->prompt_logprobs.has_value();
  for (size_t i = 0; i < output->group.size(); ++i) {
    SequenceDelta& delta = output->group[i];
    if (!HasSomething(delta) && !has_scores) continue;
    JoinText(&delta);
    OutputView& view = made.emplace_back(request, *output, i);
    if (std::exchange(has_scores, false)) view.SetPromptLogprobs(*output->prompt_logprobs);
  }
  if (output->usage) made.emplace_back(request, *output->usage);
  for (OutputView& view : made) {
    if (view.output_.index < 0) continue;
    view.TakeText(&output->group[static_cast<size_t>(view.output_.index)]);
  }
  views->splice(views->end(), made);
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
