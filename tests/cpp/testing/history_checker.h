// HistoryChecker checks the promises of an engine about outputs. Tests report every request and
// every output to it. A violation goes to the failure sink, which by default fails the test.
//
// It checks that there are outputs only for requests that were added; that each output has n
// deltas; that each sequence has one finish reason and no output after it; that there is exactly
// one final output, after all finish reasons, and nothing after it; that each token has one logprob
// if logprobs were requested; and that those of the prompt come with the first output. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mlc_native/data.h"
#include "request/request.h"

namespace mlc_native::testing {

// The outputs of a request so far.
struct SequenceHistory {
  std::vector<int32_t> token_ids;
  std::string text;
  std::vector<std::string> logprobs;
  std::optional<FinishReason> finish_reason;
};

struct RequestHistory {
  std::vector<SequenceHistory> sequences;
  bool wants_logprobs = false;
  std::optional<std::vector<int32_t>> scored_prompt;  // a prompt whose logprobs are wanted
  std::vector<std::string> prompt_logprobs;
  bool wants_embedding = false;
  std::vector<float> embedding;
  bool has_output = false;
  bool is_special = false;  // answered by only a final output
  std::optional<std::string> usage;
  std::string error_message;

  bool is_final() const { return usage.has_value(); }
  const SequenceHistory& only() const { return sequences.at(0); }
};

class HistoryChecker {
 public:
  using FailureSink = std::function<void(const std::string& violation)>;

  HistoryChecker();
  explicit HistoryChecker(FailureSink fail);

  void Add(const Request& request);
  void Receive(const std::vector<RequestStreamOutput>& outputs);

  // A request was refused: it must have no output.
  void Forget(const std::string& id) { requests_.erase(id); }

  const RequestHistory& of(const std::string& id) const { return requests_.at(id); }
  const std::map<std::string, RequestHistory>& all() const { return requests_; }

  void ExpectAllFinal() const;

 private:
  void Expect(bool holds, const std::string& id, const char* otherwise) const;
  void Receive(const RequestStreamOutput& output);
  void ReceivePromptLogprobs(const RequestStreamOutput& output, RequestHistory* history) const;
  void ReceiveEmbedding(const RequestStreamOutput& output, RequestHistory* history) const;
  void ReceiveFinal(const RequestStreamOutput& output, RequestHistory* history) const;
  bool Receive(const std::string& id, const SequenceDelta& delta, const RequestHistory& request,
               SequenceHistory* sequence) const;

  FailureSink fail_;
  std::map<std::string, RequestHistory> requests_;
};

}  // namespace mlc_native::testing
