// The scheduler decides what the next forward computes: pure functions of queues, page counts and
// limits.
//
// FIFO by arrival, preempted requests in front. A plan never needs more pages than are free, never
// has more than prefill_chunk_size rows nor more than max_num_sequence running sequences. Progress:
// with a request waiting and nothing running, a plan is never empty (a lone request always fits,
// admission saw to that). Engine's thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "config.h"
#include "engine_state.h"
#include "kv/paged_kv_cache.h"

namespace mlc_native {

struct SchedulerLimits {
  int64_t max_num_sequence = 0;
  int64_t prefill_chunk_size = 0;  // rows of one forward
  PrefillMode prefill_mode = PrefillMode::kHybrid;
};

// One sequence's share of a forward: its next num_tokens tokens.
struct PlannedSlice {
  RequestState* rstate = nullptr;
  int entry_idx = 0;
  int64_t num_tokens = 0;
  bool is_decode = false;
  bool completes_input = false;  // the last row's logits are sampled

  RequestStateEntry& entry() const { return rstate->entries[entry_idx]; }
};

struct StepPlan {
  std::vector<PlannedSlice> slices;
  int64_t num_rows = 0;
  int64_t num_prefill_rows = 0;
  bool empty() const { return slices.empty(); }
  void Clear();
};

// Waiting requests in order, the last one possibly cut to what is left of the chunk; in hybrid mode
// preceded by one row for every running sequence. All pages of a prompt are reserved when its first
// chunk is admitted. Empty when nothing can be admitted.
void PlanPrefill(EngineState estate, const PagedKvCache& kv, const SchedulerLimits& limits,
                 StepPlan* plan);

// One row for every running sequence. The caller has made sure that the pages suffice.
void PlanDecode(EngineState estate, StepPlan* plan);

// Pages that one decode step of all running sequences takes from the pool.
int64_t PagesNeededForDecode(EngineState estate, const PagedKvCache& kv);

}  // namespace mlc_native
