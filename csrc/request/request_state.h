// The states of a request: one RequestState, with one RequestStateEntry per sequence.
//
// n == 1: one entry. n > 1: entry 0 is the root, which prefills the prompt and generates nothing;
// entries 1, 2, ... are its children (parent_idx 0), forked from the root's pages when its prefill
// is complete. The root then holds no pages and stays alive until its children have finished. At
// most as many as the engine can run are children; the entries behind them get the prompt when
// there is room for them, and prefill it themselves. Each entry has its own internal id; entry i
// draws with sequence index i - 1, a lone entry with 0.
//
// A sequence is its tokens and how many of them are in the KV cache:
//   0 <= kv_len <= tokens.size(); prompt = tokens[0, prompt_len), generated = the rest.
// Prefill, decode and recomputation after preemption are the same operation: feed tokens [kv_len,
// tokens.size()). A running sequence has at least one token that is not in the cache yet, the one
// sampled last, and more after a jump-forward; the logits of the last one give the next token.
// Status: kPending -> kAlive -> kFinished; preemption: kAlive -> kPending. Engine's thread only.
//
// kv_len includes the tokens that steps in flight compute (step/step_pipeline.h). What those steps
// draw is pending instead of in `tokens`: kv_len <= length() = tokens.size() + pending_rows.size().
// While a step is planned, the pending tokens of a sequence are those of one step. They are more
// than one behind guesses, of which some may be wrong; then both numbers are more than what will be
// left. No sequence is preempted while a token of it is pending.
#pragma once

#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "draft/sequence_drafts.h"
#include "mlc_native/data.h"
#include "mlc_native/detail/token_block.h"
#include "mlc_native/grammar.h"
#include "mlc_native/tokenizer.h"
#include "observe/metrics.h"
#include "request/queue_limit.h"
#include "request/request.h"
#include "request/slow_grammar.h"
#include "sampling/token_counts.h"
#include "tokenizer/stop_str_handler.h"
#include "tokenizer/text_streamer.h"

namespace mlc_native {

// Tokens that jump-forward decoding can take back from a grammar matcher.
inline constexpr int64_t kMaxGrammarRollback = 10;

enum class RequestStateStatus { kPending, kAlive, kFinished };

struct RequestState;

// State of one sequence in one model.
struct RequestModelState {
  static constexpr int64_t kNoId = -1;
  int64_t internal_id = kNoId;  // of the KV cache; kNoId while the sequence holds no pages
  int64_t kv_len = 0;           // tokens in the KV cache
  int64_t kv_in_flight = 0;     // of those, the last ones: their steps are not collected yet
  // Of a sequence with states: the prefix cache had so many of its tokens, but no state behind
  // them.
  int64_t divergence = 0;
  // What the newest step in flight leaves on the device of the tokens that it draws.
  TokenBlock block{};

  int64_t num_collected() const { return kv_len - kv_in_flight; }
};

struct RequestStateEntry {
  RequestStateStatus status = RequestStateStatus::kPending;
  int parent_idx = -1;
  std::vector<int> child_indices;
  int sequence_idx = 0;  // index of this sequence in the request's outputs and in its random stream

  RequestState* rstate = nullptr;  // the request that this is an entry of
  RequestModelState mstate;
  // Prompt + generated. Empty for a child that is not forked yet, for an entry that has not got the
  // prompt yet, and for an answer whose end is delivered: n may be large, and the prompt long.
  std::vector<int32_t> tokens;
  bool lacks_prompt = false;
  TokenCounts generated_counts;
  // The rows of steps in flight that draw the tokens behind `tokens`, in order. Each step numbers
  // its rows from 0.
  std::vector<int32_t> pending_rows;
  bool last_is_pending = false;  // the sequence surely ends with the last pending token
  // What the request's config says of sampling/token_limits.h, here because every step asks.
  bool is_limited = false;          // tokens may be forbidden
  bool limits_need_tokens = false;  // and which ones depends on the tokens before
  int64_t num_prompt_counted = 0;   // prompt tokens that are in RequestMetrics::prefill_tokens
  TimePoint last_token_time_point;  // epoch before the first generated token
  // What may follow `tokens`; null if anything may. It does not depend on the KV cache, so it stays
  // as it is while the sequence is preempted and computed again.
  std::shared_ptr<GrammarMatcher> grammar_matcher;
  MatcherCost grammar_cost;           // since SlowGrammars has looked
  double grammar_excess = 0;          // of its recent tokens, in budgets (SlowGrammars)
  std::unique_ptr<SlowGrammar> slow;  // null unless the grammar takes long
  // What the matcher has thrown when it was asked about draft tokens. It may not be where it was,
  // so the next draw fails.
  std::exception_ptr matcher_error;
  bool grammar_ended = false;       // only the end may follow
  bool tries_jump_forward = false;  // a token was sampled since jump-forward decoding looked
  // Made for the first draft; null while the sequence prefills or waits.
  std::unique_ptr<SequenceDrafts> drafts;

  // Results of scored rows (PlannedSlice::num_scored), in the order of their positions: the scores
  // of tokens [1, 1 + num_scored). An output takes them when the prompt is complete.
  std::vector<SampleResult> scores;
  int64_t num_scored = 0;
  // Of a request that embeds its prompt: the sum of the hidden states of `num_scored` rows, or the
  // state of the last one. Complete when is_embedded; an output takes it then.
  std::vector<double> pooled;
  bool is_embedded = false;

  // Tokens that are generated and not delivered. Post-process has examined the first num_examined
  // of them, which the stop handler withholds.
  std::vector<SampleResult> undelivered;
  size_t num_examined = 0;
  // Text between the delivered tokens and `undelivered` that belongs to no token of either
  // (SequenceDelta). extra_prefix is not examined yet; the stop handler withholds
  // num_prefix_bytes_held bytes.
  std::string extra_prefix;
  size_t num_prefix_bytes_held = 0;
  std::optional<StopStrHandler> stop_handler;  // absent without stop strings
  TextStreamer text_streamer;
  std::optional<FinishReason> finish_reason;
  bool finish_reason_delivered = false;

  int64_t num_generated() const;
  int64_t length() const { return static_cast<int64_t>(tokens.size() + pending_rows.size()); }
  int64_t num_tokens_to_compute() const { return last_is_pending ? 0 : length() - mstate.kv_len; }
  // Rows [0, num_to_score()) are scored, or pooled for a mean, each once: a sequence that is
  // computed again after a preemption keeps what it has. 0 except in the first entry of a request
  // that wants the scores of its prompt, or its mean.
  int64_t num_to_score() const;
  // The most tokens that the sequence may take from the prefix cache when it starts. What is still
  // to be scored is computed, and always the last token, because its logits are wanted.
  int64_t max_cached() const;
  // Whether the answer ends because of its length when the sequence has num_tokens tokens.
  bool EndsAt(int64_t num_tokens, int64_t max_sequence_length) const;
  // Tokens that may be put in front of the next one that is drawn: with that one, the answer has
  // the length at which it ends. Below 1 if none.
  int64_t RoomBeforeDraw(int64_t max_sequence_length) const;
  // Which tokens may come next depends on the tokens before, not only on their number.
  bool mask_needs_tokens() const { return grammar_matcher != nullptr || limits_need_tokens; }
  // Its mask is not there, so that nothing can be drawn for it.
  bool sits_out() const { return slow != nullptr && !slow->has_mask; }
  bool is_root_of_branches() const { return !child_indices.empty(); }
  bool finished() const { return status == RequestStateStatus::kFinished; }
  // Has tokens to prefill, for the first time or again.
  bool waits_for_prefill() const {
    return status == RequestStateStatus::kPending &&
           (lacks_prompt || (!tokens.empty() && num_tokens_to_compute() > 0));
  }
  // The root of branches that start when the step of its prompt is collected.
  bool waits_for_branches() const {
    return status == RequestStateStatus::kPending && is_root_of_branches() &&
           num_tokens_to_compute() == 0;
  }

  // To be called before what it has to prefill is asked for.
  void TakePrompt();
  // Adds the prompt tokens that collected steps have computed or found in the cache (the first
  // num_cached) to the request's metrics, each once: recomputation does not count.
  void CountPromptTokens(int64_t num_cached);
  // Appends a sampled token, which the next post-process delivers. Throws what the grammar library
  // throws, and InternalError if the grammar forbids the token; then the request must end.
  void CommitToken(SampleResult&& result);
  // The next post-process delivers the last token.
  void Deliver(SampleResult&& result);
  // The grammar need not know a stop token of the request, which ends the answer.
  bool IsOfGrammar(int32_t token_id) const;
  // Change `tokens` and their counts only; the caller sees to the grammar matcher, the delivery and
  // the KV cache.
  void AppendToken(int32_t token_id);
  void TakeBackTokens(int64_t num_tokens);
};

struct RequestState : std::enable_shared_from_this<RequestState> {
  RequestPtr request;
  std::vector<RequestStateEntry> entries;  // never grows: entries are pointed to
  RequestMetrics metrics;
  std::string error_message;
  // Set for an empty answer whose prompt is scored or embedded. The token that is drawn behind a
  // scored prompt is no part of the answer, and no grammar applies to it.
  std::optional<FinishReason> ends_with_prompt;
  bool prompt_logprobs_delivered = false;
  bool may_draft = false;                               // its settings and the engine's ask for it
  std::shared_ptr<const PredictedText> predicted_text;  // DraftSource
  double grammar_seconds = 0;  // CPU time of its matchers, as far as SlowGrammars has looked
  double slow_seconds = 0;     // of grammar_seconds: in calls that no step waited for
  int num_slow = 0;            // times that a sequence of it has become slow

  // Which queues of EngineStateObj hold the request, and whether the next post-process processes
  // it.
  bool in_waiting_queue = false;
  bool in_running_queue = false;
  bool is_dirty = false;
  bool delivery_begun = false;  // by a post-process that has not made the output yet
  bool final_output_made = false;
  // The first work on its tokens has begun. Stays true while the request waits again; such requests
  // are at the front of the waiting queue.
  bool started = false;
  int num_overtakes = 0;  // times that a request of a higher priority was put directly before it
  int64_t arrival = 0;    // number of requests admitted before it
  TimePoint queue_deadline = kNoDeadline;  // for the start
  TimePoint deadline = kNoDeadline;        // for the end
  QueueLimit::Slot queue_slot;             // held until it has started
  bool queue_wait_traced = false;  // the trace has its "start queue wait" and not yet the "finish"

  // strip_leading_space is for the TextStreamer of each answer; stop_strs may be null. A root gets
  // at most max_children children.
  RequestState(RequestPtr request, const std::shared_ptr<const StopStrSet>& stop_strs,
               bool strip_leading_space, TimePoint now,
               int64_t max_children = std::numeric_limits<int64_t>::max());
  RequestState(const RequestState&) = delete;
  RequestState& operator=(const RequestState&) = delete;

  // Sets both deadlines from the request's timeouts, else from those of the engine.
  void SetDeadlines(const EngineConfig& engine_config);
  const GenerationConfig& config() const { return request->generation_cfg; }
  // Entries that generate: all but the root of branches. In output order.
  std::span<RequestStateEntry> leaves();
  bool all_leaves_finished();
  bool any_leaf_alive();
  // The first entry with tokens to prefill, or null.
  RequestStateEntry* NextToPrefill();
};

inline int64_t RequestStateEntry::num_generated() const {
  return tokens.empty() ? 0 : static_cast<int64_t>(tokens.size()) - rstate->request->prompt_len();
}

}  // namespace mlc_native
