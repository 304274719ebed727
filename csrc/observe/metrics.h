// Counters and times of requests and of the engine, and their JSON.
//
// Written by the engine's thread; EngineMetrics::AsJSON is called on that thread too, or on a copy.
// Times in seconds.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mlc_native/data.h"
#include "mlc_native/detail/export.h"
#include "support/clock.h"

namespace mlc_native {

// Histogram in the manner of Prometheus: bucket i counts values in (upper_bounds[i - 1],
// upper_bounds[i]]; one more for the rest.
class Histogram {
 public:
  explicit Histogram(std::vector<double> upper_bounds);
  void Observe(double value);
  const std::vector<double>& upper_bounds() const { return upper_bounds_; }
  const std::vector<int64_t>& bucket_counts() const {
    return counts_;
  }  // not cumulative, size bounds + 1
  int64_t count() const { return count_; }
  double sum() const { return sum_; }

 private:
  std::vector<double> upper_bounds_;
  std::vector<int64_t> counts_;
  int64_t count_ = 0;
  double sum_ = 0;
};

// Of one sequence in one step.
inline constexpr int64_t kMaxDraftTokens = 31;

struct RequestMetrics {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;  // of all answers, with the token that ended each
  int64_t prefill_tokens =
      0;                      // prompt tokens computed, recomputation after preemption not included
  int64_t decode_tokens = 0;  // sampled, except the first of each sequence
  int64_t num_answers = 0;    // sequences that have a token
  int64_t jump_forward_tokens = 0;    // that jump-forward decoding put in, some in place of others
  int64_t cached_tokens = 0;          // prompt tokens taken from the prefix cache
  int64_t pinned_tokens = 0;          // the prompt's, when pinned_system_prompt has pinned it
  int64_t num_preemptions = 0;        // of its sequences
  int64_t num_drafts = 0;             // steps of a sequence that verified draft tokens
  int64_t draft_tokens = 0;           // that those verified
  int64_t accepted_draft_tokens = 0;  // of those, the ones that became part of the answer
  std::array<int64_t, kMaxDraftTokens + 1> acceptance_histogram = {};  // drafts by such tokens
  int64_t prediction_tokens = 0;  // draft tokens that came from the prediction
  int64_t accepted_prediction_tokens = 0;
  int64_t prediction_len = -1;  // of the request's prediction, times its answers; -1 without one
  TimePoint add_time_point;
  TimePoint start_time_point;        // of the first step that computes something of it
  TimePoint prefill_end_time_point;  // first token sampled; epoch while not reached
  TimePoint last_token_time_point;
  TimePoint finish_time_point;

  // 0 while the points they are taken between are not reached.
  double queue_time_s() const;
  double ttft_s() const;
  double end_to_end_latency_s() const;
  // Mean time between two tokens of a sequence: (finish - first token) / decode steps.
  double inter_token_latency_s() const;
  RequestUsage Usage() const;

 private:
  std::vector<int64_t> AcceptanceHistogram() const;
};

// {"prompt_tokens", "completion_tokens", "total_tokens", "extra": {...}}. "extra" has the other
// fields or, where there is one, engine_metrics_json.
MLC_NATIVE_PRIVATE_API std::string UsageJSONString(const RequestUsage& usage);

// What the engine looks like right now; filled in by the engine when metrics are asked for.
struct EngineGauges {
  int64_t num_waiting = 0;
  int64_t num_running = 0;
  int64_t queue_length =
      0;  // requests that have not started, also those on their way to the engine
  int64_t num_queue_full = 0;  // requests that were refused because of it
  int64_t kv_pages_total = 0;
  int64_t kv_pages_used = 0;
  int64_t kv_pages_free = 0;
  int64_t kv_pages_cached = 0;  // held by the prefix cache alone
  int64_t kv_pages_pinned = 0;  // by pinned prefixes; they count as used
  int64_t prefix_cache_evicted_pages = 0;
  int64_t grammars_cached = 0;  // compiled and kept for reuse
  int64_t grammar_cache_bytes = 0;
};

// Draft tokens and what became of them, by their place in the draft. Place 0 is the token in front
// of the draft, which every step yields; place i is its i-th token.
struct SpecDecodeMetrics {
  std::vector<int64_t> draft_count;   // steps of a sequence that computed the row of the place
  std::vector<int64_t> accept_count;  // and that yielded a token at the place
  int64_t num_failures = 0;           // drafts that were given up because something threw
  int64_t num_steps_ahead = 0;        // that had guesses of what the step before drew in flight

  void Drafted(int64_t num_tokens);
  void Accepted(size_t place) { ++accept_count[place]; }
  int64_t num_drafts() const { return draft_count.empty() ? 0 : draft_count[0]; }
  int64_t num_draft_tokens() const;
  int64_t num_accepted_tokens() const;
};

class TimeCost {
 public:
  void Update(double seconds) {
    sum_ += seconds;
    ++count_;
  }
  int64_t count() const { return count_; }
  double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

struct EngineMetrics {
  double engine_prefill_time_sum = 0;
  double engine_decode_time_sum = 0;
  double engine_jump_forward_time_sum = 0;
  double grammar_mask_time_sum = 0;  // filling token masks, alongside the forward
  int64_t prompt_tokens_sum = 0;
  int64_t completion_tokens_sum = 0;
  int64_t prefill_tokens_sum = 0;
  int64_t decode_tokens_sum = 0;
  int64_t jump_forward_tokens_sum = 0;
  int64_t cached_tokens_sum = 0;
  RequestMetrics last_finished_request;
  SpecDecodeMetrics spec_decode;

  int64_t prefix_cache_lookups = 0;       // sequences that started, also after a preemption
  int64_t prefix_cache_hits = 0;          // of those, the ones that started with cached tokens
  int64_t prefix_cache_tokens_saved = 0;  // tokens that those did not compute

  int64_t num_preemptions = 0;
  int64_t num_aborts = 0;
  int64_t num_errors = 0;
  int64_t num_timeouts = 0;
  int64_t num_steps = 0;
  int64_t num_constrained_requests = 0;  // accepted, with a response_format other than text
  std::map<std::string, int64_t> finished_requests;  // by finish reason of the first sequence

  static constexpr int kEndFineGrainedTrackingBatchSize = 65;
  std::array<TimeCost, kEndFineGrainedTrackingBatchSize>
      decode_time_by_batch_size;  // index = batch size

  Histogram ttft_s;                 // observed when a request's first token is sampled
  Histogram inter_token_latency_s;  // observed at every later token of a sequence

  Histogram step_tokens;  // rows of a step: tokens computed for all of its sequences

  EngineMetrics();
  // Adds a request's tokens to the sums, keeps it as last_finished_request and counts its finish
  // reason (in num_aborts, num_errors and num_timeouts too).
  void RequestFinished(const RequestMetrics& request, const std::string& finish_reason);
  void Reset() { *this = EngineMetrics(); }
  std::string AsJSONString(const EngineGauges& gauges) const;
};

}  // namespace mlc_native
