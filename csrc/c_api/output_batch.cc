#include "c_api/output_batch.h"

#include <algorithm>
#include <iterator>
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

// Whether an answer has a view. The first one shows the scores of the prompt, too.
bool IsShown(const RequestStreamOutput& output, size_t index) {
  const SequenceDelta& delta = output.group[index];
  return !delta.token_ids.empty() || !delta.text.empty() || !delta.extra_prefix_string.empty() ||
         delta.finish_reason || (index == 0 && output.prompt_logprobs);
}

size_t NumViews(const RequestStreamOutput& output) {
  size_t count = output.is_final() ? 1 : 0;
  for (size_t i = 0; i < output.group.size(); ++i) count += IsShown(output, i) ? 1 : 0;
  return count;
}

size_t NumScores(const RequestStreamOutput& output) {
  size_t count = output.prompt_logprobs ? 1 : 0;
  for (const SequenceDelta& delta : output.group) count += delta.logprobs.empty() ? 0 : 1;
  return count;
}

// Makes one text of both. If it throws std::bad_alloc, nothing has changed.
void JoinText(SequenceDelta* delta) {
  if (delta->extra_prefix_string.empty()) return;
  delta->text.insert(0, delta->extra_prefix_string);
  delta->extra_prefix_string.clear();
}

mlcn_output EmptyView(mlcn_request* request) {
  return {.size = sizeof(mlcn_output),
          .index = -1,
          .is_final = 0,
          .finish_reason = MLCN_FINISH_NONE,
          .request = request,
          .user_data = request->user_data,
          .text = "",
          .text_length = 0,
          .tokens = nullptr,
          .num_tokens = 0,
          .logprobs = nullptr,
          .prompt_logprobs = nullptr,
          .usage = nullptr,
          .error_message = "",
          .embedding = nullptr,
          .embedding_size = 0};
}

mlcn_usage UsageOf(const RequestUsage& usage) {
  return {.size = sizeof(mlcn_usage),
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
          .end_to_end_latency = usage.end_to_end_latency_s};
}

}  // namespace

void OutputBatch::Take(std::vector<RequestStreamOutput>* outputs) {
  size_t num_views = 0, num_scores = 0, num_usages = 0;
  for (const RequestStreamOutput& output : *outputs) {
    num_views += NumViews(output);
    num_scores += NumScores(output);
    num_usages += output.is_final() ? 1 : 0;
  }
  requests_.reserve(outputs->size());
  views_.reserve(num_views);
  usages_.reserve(num_usages);
  scores_.clear();  // of an attempt that failed
  scores_.reserve(num_scores);
  for (RequestStreamOutput& output : *outputs) {
    for (SequenceDelta& delta : output.group) JoinText(&delta);
    if (num_scores > 0) AddScores(output);
  }
  outputs_ = std::move(*outputs);
}

void OutputBatch::AddScores(const RequestStreamOutput& output) {
  if (output.prompt_logprobs) scores_.emplace_back(output.prompt_logprobs->tokens);
  for (const SequenceDelta& delta : output.group) {
    if (!delta.logprobs.empty()) scores_.emplace_back(delta.logprobs);
  }
}

void OutputBatch::MakeViews() noexcept {
  size_t num_called = 0;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    (requests_[i]->on_output == nullptr ? num_polled_ : num_called) += NumViews(outputs_[i]);
  }
  views_.resize(num_polled_ + num_called);
  mlcn_output* next_polled = views_.data();
  mlcn_output* next_called = next_polled + num_polled_;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const RequestStreamOutput& output = outputs_[i];
    mlcn_request* const request = requests_[i].get();
    mlcn_output*& next = request->on_output == nullptr ? next_polled : next_called;
    for (size_t index = 0; index < output.group.size(); ++index) {
      if (!IsShown(output, index)) continue;
      *next = EmptyView(request);
      ViewAnswer(output, index, next++);
    }
    if (!output.usage) continue;
    *next = EmptyView(request);
    ViewEnd(*output.usage, next++);
  }
}

void OutputBatch::ViewAnswer(const RequestStreamOutput& output, size_t index,
                             mlcn_output* view) noexcept {
  const SequenceDelta& delta = output.group[index];
  view->index = static_cast<int32_t>(index);
  view->text = delta.text.c_str();
  view->text_length = delta.text.size();
  view->tokens = delta.token_ids.data();
  view->num_tokens = delta.token_ids.size();
  if (index == 0 && output.prompt_logprobs) {
    view->prompt_logprobs = &scores_[num_scores_used_++].view;
  }
  if (!delta.logprobs.empty()) view->logprobs = &scores_[num_scores_used_++].view;
  if (!output.embedding.empty()) {
    view->embedding = output.embedding.data();
    view->embedding_size = output.embedding.size();
  }
  if (!delta.finish_reason) return;
  view->finish_reason = FinishCode(*delta.finish_reason);
  if (*delta.finish_reason == FinishReason::kError) {
    view->error_message = output.error_message.c_str();
  }
}

void OutputBatch::ViewEnd(const RequestUsage& usage, mlcn_output* view) noexcept {
  view->is_final = 1;
  view->usage = &usages_.emplace_back(UsageOf(usage));
}

void OutputBatch::Clear() noexcept {
  views_.clear();
  num_polled_ = 0;
  usages_.clear();
  scores_.clear();
  num_scores_used_ = 0;
  requests_.clear();
  outputs_.clear();
}

OutputBatch::Logprobs::Logprobs(const std::vector<SampleResult>& results) {
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

OutputSlice OutputSlice::TakeFirst(size_t count) {
  const std::span<const mlcn_output> first = views.first(std::min(count, views.size()));
  views = views.subspan(first.size());
  return {views.empty() ? std::move(batch) : batch, first};
}

}  // namespace mlc_native::c_api

void mlcn_outputs::Append(mlc_native::c_api::OutputSlice slice) noexcept {
  const size_t begin = size_;
  size_ += slice.views.size();
  slices_.push_back({begin, std::move(slice)});
}

const mlcn_output* mlcn_outputs::at(size_t i) const {
  const auto behind = std::ranges::upper_bound(slices_, i, {}, &Placed::begin);
  const Placed& placed = *std::prev(behind);
  return &placed.slice.views[i - placed.begin];
}
