// The states of a request: one RequestState, with one RequestStateEntry per sequence.
//
// n == 1: one entry. n > 1: entry 0 is the root (prefills the prompt, generates nothing),
// entries 1..n are its children (parent_idx 0), forked from the root's pages when its prefill is
// complete. Each entry has its own internal id; child i draws with sequence index i - 1, a lone
// entry with 0.
//
// A sequence is its tokens and how many of them are in the KV cache:
//   0 <= kv_len <= tokens.size(); prompt = tokens[0, prompt_len), generated = the rest.
// Prefill, decode and recomputation after preemption are the same thing: feed tokens [kv_len,
// tokens.size()). A running sequence has exactly one token that is not in the cache yet. Status:
// kPending -> kAlive -> kFinished; preemption: kAlive -> kPending. Engine's thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data.h"
#include "metrics.h"
#include "request.h"
#include "sampling/sampler.h"
#include "tokenizer/stop_str_handler.h"
#include "tokenizer/text_streamer.h"
#include "tokenizer/token_table.h"

namespace mlc_native {

enum class RequestStateStatus { kPending, kAlive, kFinished };

// State of one sequence in one model. One model today; draft models get their own.
struct RequestModelState {
  static constexpr int64_t kNoId = -1;
  int64_t internal_id =
      kNoId;           // sequence id in the KV cache; kNoId while the sequence holds no pages
  int64_t kv_len = 0;  // tokens in the KV cache
};

struct RequestStateEntry {
  RequestStateStatus status = RequestStateStatus::kPending;
  int parent_idx = -1;
  std::vector<int> child_indices;
  int sequence_idx = 0;  // index of this sequence in the request's outputs and in its random stream

  RequestPtr request;
  RequestModelState mstate;
  std::vector<int32_t> tokens;  // prompt + generated; empty for a child that is not forked yet
  TokenCounts generated_counts;

  // Delivery: what has been generated but not handed out yet.
  std::vector<SampleResult> undelivered;
  std::optional<StopStrHandler> stop_handler;  // absent without stop strings
  TextStreamer text_streamer;
  std::optional<FinishReason> finish_reason;
  std::string error_message;

  int64_t prompt_len() const { return request->prompt_len(); }
  int64_t num_generated() const {
    return tokens.empty() ? 0 : static_cast<int64_t>(tokens.size()) - prompt_len();
  }
  int64_t num_tokens_to_compute() const {
    return static_cast<int64_t>(tokens.size()) - mstate.kv_len;
  }
  bool is_root_of_branches() const { return !child_indices.empty(); }

  // Appends a sampled token; it is delivered by the next post-process.
  void CommitToken(SampleResult result);
};

struct RequestState {
  RequestPtr request;
  std::vector<RequestStateEntry> entries;
  RequestMetrics metrics;

  RequestState(RequestPtr request, std::shared_ptr<const StopStrSet> stop_strs, TimePoint now);
  // Entries that generate: all but the root of branches. In output order.
  std::vector<RequestStateEntry*> leaves();
  bool finished() const;
};

}  // namespace mlc_native
