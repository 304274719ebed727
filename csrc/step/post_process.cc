#include "step/post_process.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "engine_state.h"
#include "step/sequence_life.h"
#include "step/state_pooling.h"

namespace mlc_native {
namespace {

bool Contains(const std::vector<int32_t>& values, int32_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Turns what one sequence has generated into a delta.
class SequenceDelivery {
 public:
  SequenceDelivery(StepContext& context, RequestStateEntry& leaf, SequenceDelta* delta)
      : context_(context),
        leaf_(leaf),
        config_(leaf.rstate->config()),
        bytes_(context.state.postproc_workspace.released_bytes),
        ids_(context.state.postproc_workspace.released_ids),
        delta_(delta) {}

  // False when the sequence has nothing to say.
  bool Run() {
    if (leaf_.finish_reason_delivered) return false;
    bytes_.clear();
    ids_.clear();
    if (!leaf_.extra_prefix.empty()) ExamineExtraPrefix();
    while (leaf_.num_examined < leaf_.undelivered.size()) ExamineNextToken();
    if (leaf_.is_embedded && !leaf_.finished()) Finish(*leaf_.rstate->ends_with_prompt);
    if (leaf_.finish_reason && leaf_.stop_handler && !leaf_.stop_handler->stop_triggered()) {
      leaf_.stop_handler->Finish(&bytes_, &ids_);
    }
    WriteText();
    WriteTokens();
    if (!leaf_.finish_reason) {
      return !delta_->token_ids.empty() || !delta_->text.empty() ||
             !delta_->extra_prefix_string.empty();
    }
    delta_->finish_reason = leaf_.finish_reason;
    return true;
  }

 private:
  // Undelivered tokens come after it, and everything before it has been released.
  void ExamineExtraPrefix() {
    const std::string bytes = std::move(leaf_.extra_prefix);
    leaf_.extra_prefix.clear();
    leaf_.num_prefix_bytes_held = bytes.size();
    PutBytes(StopStrHandler::kNoToken, bytes);
    CheckEnd();
  }

  void ExamineNextToken() {
    if (const auto reason = leaf_.rstate->ends_with_prompt) return Finish(*reason);
    const int32_t token = leaf_.undelivered[leaf_.num_examined].token.token_id;
    const bool is_stop_token = IsStopToken(token) && !CompletesStopString(token);
    if (is_stop_token && !config_.include_stop_str_in_output) {
      DropBehind(leaf_.num_examined + 1);
      leaf_.undelivered.pop_back();  // neither its id nor its text is delivered
      return Finish(FinishReason::kStop);
    }
    ++leaf_.num_examined;
    PutBytes(token, TextBytes(token));
    is_stop_token ? Finish(FinishReason::kStop) : CheckEnd();
  }

  void PutBytes(int32_t token, std::string_view bytes) {
    if (leaf_.stop_handler && MayStop(NumExamined())) {
      return leaf_.stop_handler->Put(token, bytes, &bytes_, &ids_);
    }
    bytes_ += bytes;
    if (token != StopStrHandler::kNoToken) ids_.push_back(token);
  }

  void CheckEnd() {
    const int64_t num_tokens = leaf_.rstate->request->prompt_len() + NumExamined();
    const bool grammar_ended =
        leaf_.grammar_ended && leaf_.num_examined == leaf_.undelivered.size();
    if (grammar_ended || (leaf_.stop_handler && leaf_.stop_handler->stop_triggered())) {
      Finish(FinishReason::kStop);
    } else if (leaf_.EndsAt(num_tokens, context_.max_sequence_length)) {
      Finish(FinishReason::kLength);
    }
  }

  void Finish(FinishReason reason) {
    if (!leaf_.finished()) FinishEntry(context_, leaf_, reason);
    DropBehind(leaf_.num_examined);
  }

  // What a step came to beyond the end is no part of the answer.
  void DropBehind(size_t num_undelivered) {
    leaf_.rstate->metrics.completion_tokens -=
        static_cast<int64_t>(leaf_.undelivered.size() - num_undelivered);
    leaf_.undelivered.resize(num_undelivered);
  }

  // Tokens of the answer up to the one just examined.
  int64_t NumExamined() const {
    return leaf_.num_generated() -
           static_cast<int64_t>(leaf_.undelivered.size() - leaf_.num_examined);
  }

  // Whether an answer may end with its token number `num_generated`, except by its length.
  bool MayStop(int64_t num_generated) const { return num_generated > config_.min_tokens; }

  // Requires: `token` is the next one to be examined.
  bool IsStopToken(int32_t token) const {
    if (!MayStop(NumExamined() + 1)) return false;
    return (!config_.debug_config.ignore_eos && Contains(context_.eos_token_ids, token)) ||
           Contains(config_.stop_token_ids, token);
  }

  // A stop string takes precedence over the stop token that completes it, and its text is withheld.
  // This tries the bytes on a copy of the handler: those of other stop tokens must not reach it.
  bool CompletesStopString(int32_t token) const {
    const std::string_view bytes = TextBytes(token);
    if (!leaf_.stop_handler || bytes.empty()) return false;
    StopStrHandler trial = *leaf_.stop_handler;
    std::string ignored_text;
    std::vector<int32_t> ignored_ids;
    trial.Put(token, bytes, &ignored_text, &ignored_ids);
    return trial.stop_triggered();
  }

  std::string_view TextBytes(int32_t token) const {
    if (context_.token_table == nullptr) return {};
    return config_.skip_special_tokens ? context_.token_table->text_bytes(token)
                                       : context_.token_table->bytes(token);
  }

  void WriteText() {
    std::string_view bytes = bytes_;
    if (leaf_.num_prefix_bytes_held > 0) {
      const size_t num_prefix_bytes = std::min(leaf_.num_prefix_bytes_held, bytes.size());
      leaf_.num_prefix_bytes_held -= num_prefix_bytes;
      leaf_.text_streamer.Put(bytes.substr(0, num_prefix_bytes), &delta_->extra_prefix_string);
      bytes.remove_prefix(num_prefix_bytes);
    }
    leaf_.text_streamer.Put(bytes, &delta_->text);
    if (leaf_.finish_reason) leaf_.text_streamer.Finish(&delta_->text);
  }

  // Released ids come in the order in which they were generated, so they are the first undelivered.
  void WriteTokens() {
    delta_->token_ids.assign(ids_.begin(), ids_.end());
    if (config_.logprobs) {
      const auto begin = std::make_move_iterator(leaf_.undelivered.begin());
      delta_->logprobs.assign(begin, begin + std::ssize(ids_));
      delta_->token_table = context_.token_table;
    }
    if (leaf_.finish_reason || ids_.size() == leaf_.undelivered.size()) {
      leaf_.undelivered.clear();
    } else {
      leaf_.undelivered.erase(leaf_.undelivered.begin(), leaf_.undelivered.begin() + ids_.size());
    }
    leaf_.num_examined = leaf_.undelivered.size();
  }

  StepContext& context_;
  RequestStateEntry& leaf_;
  const GenerationConfig& config_;
  std::string& bytes_;
  std::vector<int32_t>& ids_;
  SequenceDelta* const delta_;
};

// The reason that ended the request as a whole takes precedence over those of sequences that had
// finished before.
FinishReason ReasonOf(RequestState& rstate) {
  FinishReason reason = *rstate.leaves()[0].finish_reason;
  for (const RequestStateEntry& leaf : rstate.leaves()) {
    const FinishReason leaf_reason = *leaf.finish_reason;
    if (leaf_reason != FinishReason::kStop && leaf_reason != FinishReason::kLength) {
      reason = leaf_reason;
    }
  }
  return reason;
}

// Room for the outputs is reserved, so an output that is complete cannot get lost any more.
void FinishRequest(StepContext& context, RequestState& rstate) {
  if (rstate.final_output_made) return;
  rstate.entries[0].status = RequestStateStatus::kFinished;
  rstate.metrics.finish_time_point = context.now();
  RequestStreamOutput final;
  final.request_id = rstate.request->id;
  final.usage = rstate.metrics.Usage();
  final.error_message = rstate.error_message;
  context.state.metrics.RequestFinished(rstate.metrics, ToString(ReasonOf(rstate)));
  context.state.postproc_workspace.outputs.push_back(std::move(final));
  rstate.final_output_made = true;
}

// Nothing more of these sequences is delivered but their end.
void DropUndelivered(RequestState& rstate) {
  for (RequestStateEntry& leaf : rstate.leaves()) {
    leaf.undelivered.clear();
    leaf.num_examined = 0;
    leaf.extra_prefix.clear();
    leaf.num_prefix_bytes_held = 0;
    leaf.stop_handler.reset();
    leaf.text_streamer = TextStreamer();
  }
}

// With the first output of a request that wants them.
void AddPromptLogprobs(StepContext& context, RequestState& rstate, RequestStreamOutput* output) {
  RequestStateEntry& entry = rstate.entries[0];
  if (!rstate.config().prompt_logprobs || rstate.prompt_logprobs_delivered) return;
  if (entry.num_scored < entry.num_to_score()) return;  // it ended before
  SampleResult first;
  first.token.token_id = rstate.request->prompt_token_ids[0];
  entry.scores.insert(entry.scores.begin(), std::move(first));
  output->prompt_logprobs = {.tokens = std::move(entry.scores), .token_table = context.token_table};
  rstate.prompt_logprobs_delivered = true;
}

// With the only output of a request that is embedded.
void AddEmbedding(RequestState& rstate, RequestStreamOutput* output) {
  RequestStateEntry& entry = rstate.entries[0];
  if (!entry.is_embedded || entry.finish_reason != rstate.ends_with_prompt) return;
  output->embedding = EmbeddingOf(entry);
  entry.pooled = {};
}

void ProcessRequest(StepContext& context, RequestState& rstate) {
  // An attempt that threw half way has lost what it had taken; what comes behind that would leave a
  // gap in the answer. The request has been ended since.
  if (rstate.delivery_begun) DropUndelivered(rstate);
  rstate.delivery_begun = true;
  RequestStreamOutput output{.request_id = rstate.request->id,
                             .group = std::vector<SequenceDelta>(rstate.leaves().size()),
                             .prompt_logprobs = {},
                             .usage = {},
                             .error_message = rstate.error_message};
  bool anything = false;
  SequenceDelta* delta = output.group.data();
  for (RequestStateEntry& leaf : rstate.leaves()) {
    if (SequenceDelivery(context, leaf, delta++).Run()) anything = true;
  }
  if (anything) {
    AddPromptLogprobs(context, rstate, &output);
    AddEmbedding(rstate, &output);
    context.state.postproc_workspace.outputs.push_back(std::move(output));
    for (RequestStateEntry& leaf : rstate.leaves()) {
      leaf.finish_reason_delivered = leaf.finish_reason.has_value();
      if (leaf.finish_reason_delivered) leaf.tokens = {};
    }
  }
  rstate.delivery_begun = false;
  if (rstate.all_leaves_finished()) {
    FinishRequest(context, rstate);
    return;
  }
  if (!rstate.any_leaf_alive()) context.state.RemoveFromRunning(rstate);  // the rest was preempted
  // A preempted sequence may have ended with tokens that it had before.
  if (rstate.NextToPrefill() == nullptr) context.state.RemoveFromWaiting(rstate);
}

}  // namespace

void PostProcess(StepContext& context) {
  ActionPostProcessWorkspace& workspace = context.state.postproc_workspace;
  // If something below throws (no memory), the requests stay dirty and can be processed again: one
  // that has been processed produces nothing new.
  workspace.outputs.reserve(workspace.outputs.size() + 2 * workspace.dirty.size());
  workspace.finished.reserve(workspace.dirty.size());
  for (RequestState* rstate : workspace.dirty) ProcessRequest(context, *rstate);
  for (RequestState* rstate : workspace.dirty) {
    rstate->is_dirty = false;
    if (rstate->final_output_made) workspace.finished.push_back(rstate->request.get());
  }
  workspace.dirty.clear();
  context.state.Erase(&workspace.finished);
}

}  // namespace mlc_native
