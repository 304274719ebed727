// What goes into a request and what streams out of it. Plain values; any thread.
//
// A request of n sequences streams RequestStreamOutput objects; each holds one SequenceDelta per
// sequence. The last output of every accepted request, and only that one, carries
// `request_final_usage_json_str` (an empty `group` otherwise). A sequence's finish reason arrives
// with or before it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace mlc_native {

struct TextData {
  std::string text;  // UTF-8; tokenized on the caller's side, before the engine sees the request
};

struct TokenData {
  std::vector<int32_t> token_ids;
};

using Data = std::variant<TextData, TokenData>;

enum class FinishReason { kStop, kLength, kAbort, kError, kTimeout };

// "stop", "length", "abort", "error", "timeout"
const char* ToString(FinishReason reason);

struct TokenLogprob {
  int32_t token_id = 0;
  // Natural logarithm, of the model's distribution before temperature and truncation; 0 of a token
  // that jump-forward decoding put in, because nothing else could have come.
  float logprob = 0.0f;
};

// One token; top_logprobs holds the most likely tokens in descending order when they were
// asked for.
struct SampleResult {
  TokenLogprob token;
  std::vector<TokenLogprob> top_logprobs;
};

// What a sequence has new. The answer is extra_prefix_string + text of all deltas, in order.
//
// `text` is the text of `token_ids`, but for what is held back at their end. Jump-forward decoding
// may put a longer token in the place of tokens that were delivered before: those stay delivered,
// the longer one is not, and the part of its text that is new is extra_prefix_string. So the
// delivered ids are not always those that the model has seen; a request with logprobs gets all of
// those, one logprob each, because nothing that was delivered is replaced for it.
struct SequenceDelta {
  std::vector<int32_t> token_ids;
  std::string text;                            // valid UTF-8
  std::vector<std::string> logprob_json_strs;  // one per token id when logprobs were asked for
  std::optional<FinishReason> finish_reason;
  std::string extra_prefix_string;  // text of no delivered token that precedes `text`; valid UTF-8
};

struct RequestStreamOutput {
  std::string request_id;
  std::vector<SequenceDelta> group;  // [n], or empty in the final output
  std::optional<std::string> request_final_usage_json_str;
  std::string error_message;  // set when a sequence finished with kError

  bool is_final() const { return request_final_usage_json_str.has_value(); }
};

using RequestStreamCallback = std::function<void(std::vector<RequestStreamOutput>)>;

// How far the weights of a model are loaded, in bytes; called on the loading thread.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

}  // namespace mlc_native
