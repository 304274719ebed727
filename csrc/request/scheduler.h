// The scheduler decides what the next forward computes: pure functions of queues, page counts, the
// prefix cache and limits.
//
// Waiting requests are planned in the order of their queue (EngineStateObj::PushWaiting); none
// overtakes the head. A plan never needs more pages than are available (free or cached), never has
// more than prefill_chunk_size rows, never scores more than max_num_scored of them, never pools
// more than max_num_pooled for means and never leads to more than max_num_sequence generating
// sequences. Progress: if a request waits, nothing runs and no pages are used, a plan is never
// empty (admission refuses requests that do not fit alone). Engine's thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mlc_native/config.h"

namespace mlc_native {

class PagedKvCache;
struct EngineStateObj;
struct RequestStateEntry;

struct SchedulerLimits {
  int64_t max_num_sequence = 0;
  int64_t prefill_chunk_size = 0;  // rows of one forward, at least max_num_sequence
  PrefillMode prefill_mode = PrefillMode::kHybrid;
  int64_t max_num_scored = 1;  // of those rows, >= 1
  int64_t max_num_pooled = 1;  // likewise
};

// One sequence's share of a forward: its next num_tokens tokens.
struct PlannedSlice {
  RequestStateEntry* entry = nullptr;
  int64_t num_tokens = 0;
  int64_t num_cached = 0;  // tokens before them that a sequence which starts takes from the cache
  bool is_decode = false;
  bool completes_input = false;  // tokens are drawn from its last rows

  // Rows that tokens are drawn from, if the slice completes the input: its last ones. More than one
  // only for a running sequence that has one token to compute, which is known: the rows behind that
  // one are draft tokens. The drawn tokens are kept up to and including the first that differs from
  // its draft token; the rows behind it are given back. num_tokens includes the draft tokens. The
  // grammar of the sequence accepts them, and none of them ends the answer.
  int64_t num_drawn = 1;
  const int32_t* draft_tokens = nullptr;  // [num_drawn - 1], valid until Submit returns
  // Rows directly before the drawn ones whose next token is known: it gets its log-probability
  // (RequestStateEntry::scores).
  int64_t num_scored = 0;
  // Of a request that embeds its prompt, of which nothing is drawn: the last rows, whose hidden
  // states are pooled for a mean (RequestStateEntry::pooled).
  int64_t num_pooled = 0;

  std::span<const int32_t> drafts() const {
    return {draft_tokens, static_cast<size_t>(num_drawn - 1)};
  }
};

struct StepPlan {
  std::vector<PlannedSlice> slices;  // decode rows first
  int64_t num_rows = 0;
  int64_t num_prefill_rows = 0;
  bool empty() const { return slices.empty(); }
  void Clear();
  void Add(const PlannedSlice& slice);
};

// Waiting requests in order, the last one possibly cut to what is left of the chunk or of the rows
// that may be scored or pooled; in hybrid mode preceded by the rows of the running sequences. All
// pages that a sequence needs for its tokens are counted when its first chunk is admitted, and one
// page more per running sequence is left free so that admission does not lead to preemption at
// once. Empty when nothing can be admitted.
void PlanPrefill(EngineStateObj& state, const PagedKvCache& kv, const SchedulerLimits& limits,
                 StepPlan* plan);

// Appends the rows of the running sequences that do not sit out, at most max_rows: one for each, so
// that each advances, and what is left first come, first served to those with more to compute. The
// caller has made sure that the pages suffice; max_rows is at least the number of running
// sequences.
void PlanDecode(EngineStateObj& state, int64_t max_rows, StepPlan* plan);

// Pages that all running sequences take from the pool for all that they have to compute.
int64_t PagesNeededForDecode(EngineStateObj& state, const PagedKvCache& kv);

// Whom to preempt: of the running sequences with the lowest priority, the last. Null when nothing
// runs.
RequestStateEntry* PreemptionVictim(EngineStateObj& state);

}  // namespace mlc_native
