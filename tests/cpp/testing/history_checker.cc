#include "testing/history_checker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "observe/metrics.h"
#include "tokenizer/logprob_json.h"

namespace mlc_native::testing {

HistoryChecker::HistoryChecker()
    : HistoryChecker([](const std::string& what) { ADD_FAILURE() << what; }) {}
HistoryChecker::HistoryChecker(FailureSink fail) : fail_(std::move(fail)) {}

void HistoryChecker::Add(const Request& request) {
  RequestHistory history;
  history.sequences.resize(request.generation_cfg.n);
  history.wants_logprobs = request.generation_cfg.logprobs;
  if (request.generation_cfg.prompt_logprobs) history.scored_prompt = request.prompt_token_ids;
  history.wants_embedding = request.embedding.has_value();
  history.is_special = !request.generation_cfg.debug_config.special_request.empty();
  const auto [position, is_new] = requests_.emplace(request.id, std::move(history));
  if (is_new) return;
  Expect(position->second.is_final(), request.id, "is added twice");
}

void HistoryChecker::Receive(const std::vector<RequestStreamOutput>& outputs) {
  Expect(!outputs.empty(), "", "callback without outputs");
  for (const RequestStreamOutput& output : outputs) Receive(output);
}

void HistoryChecker::ExpectAllFinal() const {
  for (const auto& [id, history] : requests_) {
    Expect(history.is_final(), id, "has no final output");
  }
}

void HistoryChecker::Expect(bool holds, const std::string& id, const char* otherwise) const {
  if (!holds) fail_("request \"" + id + "\": " + otherwise);
}

void HistoryChecker::Receive(const RequestStreamOutput& output) {
  const std::string& id = output.request_id;
  const auto found = requests_.find(id);
  if (found == requests_.end()) return Expect(false, id, "output of an unknown request");
  RequestHistory& history = found->second;
  Expect(!history.is_final(), id, "output after the final one");
  if (!output.error_message.empty()) history.error_message = output.error_message;
  if (output.prompt_logprobs) ReceivePromptLogprobs(output, &history);
  if (!output.embedding.empty()) ReceiveEmbedding(output, &history);
  history.has_output = true;
  if (output.is_final()) return ReceiveFinal(output, &history);
  if (output.group.size() != history.sequences.size()) {
    return Expect(false, id, "an output without a delta for each sequence");
  }
  bool says_something = false;
  for (size_t i = 0; i < output.group.size(); ++i) {
    says_something |= Receive(id, output.group[i], history, &history.sequences[i]);
  }
  Expect(says_something, id, "an output with nothing in it");
}

void HistoryChecker::ReceivePromptLogprobs(const RequestStreamOutput& output,
                                           RequestHistory* history) const {
  const std::string& id = output.request_id;
  const auto& [tokens, token_table] = *output.prompt_logprobs;
  Expect(!history->has_output && !output.is_final(), id, "prompt logprobs after an output");
  if (!history->scored_prompt) return Expect(false, id, "unwanted prompt logprobs");
  const auto id_of = [](const SampleResult& result) { return result.token.token_id; };
  Expect(std::ranges::equal(tokens, *history->scored_prompt, {}, id_of), id,
         "prompt logprobs of other tokens");
  for (const SampleResult& result : tokens) {
    history->prompt_logprobs.push_back(LogprobJson(result, token_table.get()));
  }
}

void HistoryChecker::ReceiveEmbedding(const RequestStreamOutput& output,
                                      RequestHistory* history) const {
  const std::string& id = output.request_id;
  Expect(history->wants_embedding, id, "unwanted embedding");
  Expect(!history->has_output && !output.is_final(), id, "an embedding after an output");
  Expect(output.group.size() == 1 && output.group[0].finish_reason == FinishReason::kStop, id,
         "an embedding whose request does not end");
  history->embedding = output.embedding;
}

void HistoryChecker::ReceiveFinal(const RequestStreamOutput& output,
                                  RequestHistory* history) const {
  Expect(output.group.empty(), output.request_id, "a final output with deltas");
  bool has_answer = !history->is_special;
  for (const SequenceHistory& sequence : history->sequences) {
    Expect(sequence.finish_reason || history->is_special, output.request_id,
           "final output before all finish reasons");
    has_answer &= sequence.finish_reason == FinishReason::kStop ||
                  sequence.finish_reason == FinishReason::kLength;
  }
  Expect(!has_answer || !history->scored_prompt || !history->prompt_logprobs.empty(),
         output.request_id, "an answer without the prompt logprobs");
  Expect(!has_answer || history->wants_embedding == !history->embedding.empty(), output.request_id,
         "an end without the embedding");
  history->usage = UsageJSONString(*output.usage);
}

bool HistoryChecker::Receive(const std::string& id, const SequenceDelta& delta,
                             const RequestHistory& request, SequenceHistory* sequence) const {
  const bool empty = delta.token_ids.empty() && delta.text.empty() &&
                     delta.extra_prefix_string.empty() && !delta.finish_reason;
  Expect(empty || !sequence->finish_reason, id, "delta after the finish reason");
  Expect(delta.logprobs.size() == (request.wants_logprobs ? delta.token_ids.size() : 0), id,
         "not one logprob per token");
  sequence->token_ids.insert(sequence->token_ids.end(), delta.token_ids.begin(),
                             delta.token_ids.end());
  sequence->text += delta.extra_prefix_string + delta.text;
  for (const SampleResult& result : delta.logprobs) {
    sequence->logprobs.push_back(LogprobJson(result, delta.token_table.get()));
  }
  if (delta.finish_reason) sequence->finish_reason = delta.finish_reason;
  return !empty;
}

}  // namespace mlc_native::testing
