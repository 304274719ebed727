// What goes into a request and what streams out of it. Plain values; any thread.
//
// A request of n sequences streams RequestStreamOutput objects; each holds one SequenceDelta per
// sequence. The last output of every accepted request, and only that one, has `usage` and an empty
// `group`. The finish reason of every sequence arrives before it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "mlc_native/detail/embedding_config.h"
#include "mlc_native/detail/export.h"

namespace mlc_native {

class TokenTable;
struct Request;  // made by Engine::CreateRequest and ThreadedEngine::CreateRequest
using RequestPtr = std::shared_ptr<const Request>;

// What a loaded engine can serve: requests beyond these limits are refused.
struct RequestLimits {
  int64_t vocab_size = 0;
  int64_t max_num_sequence = 0;
  int64_t max_sequence_length = 0;  // tokens, prompt + generated: min(max_single, max_total)
  std::string length_reason = {};   // what sets max_sequence_length, for messages
  // Tokens, whole pages, that all pinned prompts may take; nullopt without a prefix cache.
  std::optional<int64_t> max_pinned_length = {};
  bool generates = true;       // false: it has no head, or whole_prompts, and embeds texts only
  int64_t embedding_size = 0;  // numbers of an embedding; 0: the model gives none
  int64_t num_classes = 0;     // of texts that are classified; 0: the model has none
  int64_t input_size = 0;      // numbers of a row of EmbeddingData; 0: it takes tokens only
  bool row_positions = false;  // it takes EmbeddingData::positions
  std::optional<int64_t> max_whole_rows = {};  // of one EmbeddingData, if all are computed at once
  bool whole_prompts = false;     // a prompt is computed at once (attention in both directions)
  EmbeddingDefaults embedding{};  // of its folder
};

// An adapter (LoRA) that is loaded beside the model.
struct AdapterInfo {
  std::string name;
  std::string path;       // its folder
  int64_t rank = 0;       // the most that one of its matrices has
  int64_t num_bytes = 0;  // of its weights in memory
};

struct TextData {
  std::string text;  // UTF-8; tokenized on the caller's side, before the engine sees the request
};

struct TokenData {
  std::vector<int32_t> token_ids;
};

// A position of M-RoPE (Qwen2-VL): time, height and width, which are the same number in texts.
using RowPosition = std::array<int32_t, 3>;

// Rows that the model reads in place of the embeddings of tokens: what the vision tower of a model
// makes of an image, or a learned prompt. They are what transformers calls inputs_embeds. A row
// counts as a token, and may be cached, computed in chunks and computed again as one.
struct EmbeddingData {
  int64_t num_rows = 0;
  // [num_rows, RequestLimits::input_size], finite.
  std::shared_ptr<const std::vector<float>> values;
  // Where the rope of a model with positions of images puts each row, from the place of the first
  // one on: [num_rows], each number in [0, num_rows). Empty: 0, 1, 2, ... in all components.
  std::vector<RowPosition> positions{};
  int64_t advance = 0;  // with positions: of what follows, in [1, num_rows]
};

// Among the tokens of a sequence, ids from here on are rows of EmbeddingData.
inline constexpr int32_t kFirstInputRow = int32_t{1} << 30;
constexpr bool IsInputRow(int32_t token_id) { return token_id >= kFirstInputRow; }

using Data = std::variant<TextData, TokenData, EmbeddingData>;

enum class FinishReason { kStop, kLength, kAbort, kError, kTimeout };

// "stop", "length", "abort", "error", "timeout"
MLC_NATIVE_API const char* ToString(FinishReason reason);

struct TokenLogprob {
  int32_t token_id = 0;
  // Natural logarithm, of the model's distribution before temperature and truncation; 0 of a token
  // that jump-forward decoding put in, because nothing else could have come.
  float logprob = 0.0f;
};

// One token; top_logprobs holds the most likely tokens in descending order if they were asked
// for.
struct SampleResult {
  TokenLogprob token;
  std::vector<TokenLogprob> top_logprobs;
};

// The log-probabilities of a prompt, of the model's own distribution like those of an answer.
struct PromptLogprobs {
  // One for each token of the prompt. The first token has none: its logprob is 0, without
  // alternatives.
  std::vector<SampleResult> tokens;
  std::shared_ptr<const TokenTable> token_table;  // as in SequenceDelta
};

// What one sequence has produced since its last delta. The answer is extra_prefix_string + text of
// all deltas, in order.
//
// `text` is the text of `token_ids`, except what is held back at their end. Jump-forward decoding
// may replace delivered tokens by a longer one: they stay delivered, the longer one is not, and the
// part of its text that is new is extra_prefix_string. So the delivered ids are not always those
// that the model has computed. In a request with logprobs nothing delivered is replaced: it gets
// every token, with one logprob each.
struct SequenceDelta {
  std::vector<int32_t> token_ids;
  std::string text;                    // valid UTF-8
  std::vector<SampleResult> logprobs;  // one per token id if logprobs were asked for
  // Gives the tokens of `logprobs` their texts (tokenizer/logprob_json.h). Null without a tokenizer
  // or without logprobs.
  std::shared_ptr<const TokenTable> token_table;
  std::optional<FinishReason> finish_reason;
  std::string extra_prefix_string;  // text of no delivered token that precedes `text`; valid UTF-8
};

// Tokens and times of a request that has ended; times in seconds.
struct RequestUsage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;  // of all answers, with the token that ended each
  int64_t prefill_tokens = 0;     // prompt tokens computed, without recomputation after preemption
  int64_t decode_tokens = 0;      // sampled tokens, except the first of each sequence
  int64_t jump_forward_tokens = 0;    // put in by jump-forward decoding; some replaced others
  int64_t cached_tokens = 0;          // prompt tokens taken from the prefix cache
  int64_t pinned_tokens = 0;          // the prompt's, if pinned_system_prompt has pinned it
  int64_t num_preemptions = 0;        // of its sequences
  int64_t num_drafts = 0;             // steps of a sequence that verified draft tokens
  int64_t draft_tokens = 0;           // that those verified
  int64_t accepted_draft_tokens = 0;  // of those, the ones that became part of the answer
  std::vector<int64_t> acceptance_histogram = {};  // [k]: drafts of which k tokens did
  // Of GenerationConfig::prediction, if it was given: the draft tokens that became part of the
  // answer, and those that did not.
  std::optional<int64_t> accepted_prediction_tokens = {};
  std::optional<int64_t> rejected_prediction_tokens = {};
  double prefill_tokens_per_s = 0;   // until the first token
  double decode_tokens_per_s = 0;    // after it
  double end_to_end_latency_s = 0;   // the times are 0 if what they end with was not reached
  double queue_time_s = 0;           // from submission to the first step
  double ttft_s = 0;                 // from submission to the first token
  double inter_token_latency_s = 0;  // mean, between two tokens of a sequence
  // JSON of the engine's metrics: the answer to special_request "query_engine_metrics", where
  // everything else is 0. Otherwise empty.
  std::string engine_metrics_json;
};

struct RequestStreamOutput {
  std::string request_id;
  std::vector<SequenceDelta> group;  // [n], or empty in the final output
  // In the first output of a request whose prompt was scored (GenerationConfig::prompt_logprobs).
  // A request that ends before its prompt is computed never gets them.
  std::optional<PromptLogprobs> prompt_logprobs;
  // In the only output of a request that embeds or classifies its prompt
  // (Engine::CreateEmbeddingRequest), except the final one: [dimensions], or [num_classes].
  std::vector<float> embedding{};
  std::optional<RequestUsage> usage;  // of the final output
  std::string error_message;          // set when a sequence finished with kError

  bool is_final() const { return usage.has_value(); }
};

using RequestStreamCallback = std::function<void(std::vector<RequestStreamOutput>)>;

// How far the weights of a model are loaded, in bytes; called on the loading thread.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

}  // namespace mlc_native
