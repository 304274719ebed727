#include "request/scheduler.h"

#include <algorithm>
#include <limits>

#include "engine_state.h"
#include "kv/paged_kv_cache.h"

namespace mlc_native {
namespace {

// What is left to give away while a prefill is planned.
struct Budget {
  int64_t rows = 0;
  int64_t scored_rows = 0;
  int64_t pooled_rows = 0;
  int64_t pages = 0;
  int64_t sequences = 0;
  int64_t num_generating = 0;  // running, or going to when their prefill is complete
  int64_t new_sequences = 0;   // that there are slots of states for
};

// What an entry takes when it is planned.
struct Demand {
  int64_t num_cached = 0;  // tokens that it starts with
  int64_t pages = 0;  // those that it needs, and cached ones that it keeps from being reclaimed
};

Demand DemandOfNew(const RequestStateEntry& entry, PrefixCache& cache, const PagedKvCache& kv,
                   int64_t max_cached) {
  const auto prefix =
      cache.Find(std::span(entry.tokens).first(max_cached), entry.rstate->request->cache_space());
  const int64_t needed = kv.PagesNeededForNew(std::ssize(entry.tokens), prefix.length);
  return {.num_cached = prefix.length, .pages = needed + prefix.num_cached_pages};
}

// Besides the pages of the entry, these must stay available: the next one of every generating
// sequence.
bool PagesSuffice(int64_t pages_needed, const Budget& budget) {
  if (pages_needed == 0) return true;  // reserved with its first chunk
  return pages_needed + budget.num_generating <= budget.pages;
}

Demand DemandOf(const RequestStateEntry& entry, EngineStateObj& state, const PagedKvCache& kv,
                const Budget& budget) {
  const int64_t num_tokens = entry.num_tokens_to_compute();
  if (entry.mstate.internal_id != RequestModelState::kNoId) {
    return {.pages = kv.PagesNeeded(entry.mstate.internal_id, num_tokens)};
  }
  if (state.prefix_cache == nullptr) return {.pages = kv.PagesNeededForNew(num_tokens)};
  const Demand demand = DemandOfNew(entry, *state.prefix_cache, kv, entry.max_cached());
  if (PagesSuffice(demand.pages, budget)) return demand;
  // A hit that ends within a page costs a copy of it. Whole pages never cost more than no hit, so
  // that a sequence alone always fits.
  const int64_t whole_pages =
      kv.has_states() ? 0 : demand.num_cached / kv.page_size() * kv.page_size();
  return DemandOfNew(entry, *state.prefix_cache, kv, whole_pages);
}

// The slice that the rows left have room for. When the rows to be scored or pooled run out, it ends
// before the next one, and it does not end within rows that are computed at once; num_tokens may be
// 0 then.
PlannedSlice FittingSlice(RequestStateEntry& entry, int64_t num_cached, const Budget& budget) {
  const int64_t begin = entry.mstate.kv_len + num_cached;
  const int64_t length = entry.mstate.kv_len + entry.num_tokens_to_compute();
  // Rows before kv_len are scored or in flight.
  const int64_t first_scored = std::max(begin, entry.num_scored);
  const int64_t num_to_score = std::max<int64_t>(entry.num_to_score() - first_scored, 0);
  int64_t end = std::min(begin + budget.rows, length);
  const bool is_pooled = entry.rstate->request->embedding.has_value();
  const int64_t room = is_pooled ? budget.pooled_rows : budget.scored_rows;
  if (num_to_score > room) end = std::min(end, first_scored + room);
  end = entry.rstate->request->StepEnd(begin, end);
  const int64_t num_kept = std::clamp<int64_t>(end - first_scored, 0, num_to_score);
  return {.entry = &entry,
          .num_tokens = end - begin,
          .num_cached = num_cached,
          .completes_input = end == length,
          .num_scored = is_pooled ? 0 : num_kept,
          .num_pooled = is_pooled ? num_kept : 0};
}

// Plans as much of the entry as fits. False when the entry is not complete after it: nothing behind
// it is planned then.
bool PlanEntry(RequestStateEntry& entry, EngineStateObj& state, const PagedKvCache& kv,
               Budget* budget, StepPlan* plan) {
  const int64_t num_sequences = entry.is_root_of_branches() ? std::ssize(entry.child_indices) : 1;
  if (budget->rows == 0 || num_sequences > budget->sequences) return false;
  const bool is_new = entry.mstate.internal_id == RequestModelState::kNoId;
  if (is_new && budget->new_sequences <= 0) return false;
  entry.TakePrompt();
  const Demand demand = DemandOf(entry, state, kv, *budget);
  if (!PagesSuffice(demand.pages, *budget)) return false;
  const PlannedSlice slice = FittingSlice(entry, demand.num_cached, *budget);
  if (slice.num_tokens == 0) return false;
  plan->Add(slice);
  budget->rows -= slice.num_tokens;
  budget->scored_rows -= slice.num_scored;
  budget->pooled_rows -= slice.num_pooled;
  budget->pages -= demand.pages;
  budget->sequences -= num_sequences;
  if (is_new) --budget->new_sequences;
  budget->num_generating += num_sequences;
  return slice.completes_input;
}

void PlanWaiting(EngineStateObj& state, const PagedKvCache& kv, Budget* budget, StepPlan* plan) {
  for (const RequestPtr& request : state.waiting_queue) {
    for (RequestStateEntry& entry : state.GetRequestState(request->id).entries) {
      if (entry.waits_for_prefill() && !PlanEntry(entry, state, kv, budget, plan)) return;
    }
  }
}

}  // namespace

void StepPlan::Clear() {
  slices.clear();
  num_rows = 0;
  num_prefill_rows = 0;
}

void StepPlan::Add(const PlannedSlice& slice) {
  slices.push_back(slice);
  num_rows += slice.num_tokens;
  if (!slice.is_decode) num_prefill_rows += slice.num_tokens;
}

void PlanPrefill(EngineStateObj& state, const PagedKvCache& kv, const SchedulerLimits& limits,
                 StepPlan* plan) {
  plan->Clear();
  if (state.waiting_queue.empty()) return;
  const int64_t num_running = std::ssize(state.GetRunningRequestStateEntries());
  Budget budget{.rows = limits.prefill_chunk_size,
                .scored_rows = limits.max_num_scored,
                .pooled_rows = limits.max_num_pooled,
                .pages = kv.pool().num_available(),
                .sequences = limits.max_num_sequence - num_running,
                .num_generating = num_running,
                .new_sequences =
                    kv.has_states() ? kv.num_new_sequences() : std::numeric_limits<int64_t>::max()};
  if (budget.sequences <= 0) return;
  if (limits.prefill_mode == PrefillMode::kHybrid && num_running > 0) {
    budget.pages -= PagesNeededForDecode(state, kv);
    if (budget.pages < 0) return;
    PlanDecode(state, limits.prefill_chunk_size, plan);
    budget.rows -= plan->num_rows;
  }
  PlanWaiting(state, kv, &budget, plan);
  if (plan->num_prefill_rows == 0) plan->Clear();
}

void PlanDecode(EngineStateObj& state, int64_t max_rows, StepPlan* plan) {
  const auto& running = state.GetRunningRequestStateEntries();
  int64_t spare_rows = max_rows - std::ssize(running);
  for (RequestStateEntry* entry : running) {
    if (entry->sits_out()) continue;
    const int64_t to_compute = entry->num_tokens_to_compute();
    if (to_compute == 0) continue;  // it ends with the token that is pending
    const int64_t num_tokens = std::min(to_compute, 1 + spare_rows);
    spare_rows -= num_tokens - 1;
    plan->Add({.entry = entry,
               .num_tokens = num_tokens,
               .is_decode = true,
               .completes_input = num_tokens == to_compute});
  }
}

RequestStateEntry* PreemptionVictim(EngineStateObj& state) {
  RequestStateEntry* victim = nullptr;
  for (RequestStateEntry* entry : state.GetRunningRequestStateEntries()) {
    if (victim == nullptr ||
        entry->rstate->config().priority >= victim->rstate->config().priority) {
      victim = entry;
    }
  }
  return victim;
}

int64_t PagesNeededForDecode(EngineStateObj& state, const PagedKvCache& kv) {
  int64_t pages = 0;
  for (const RequestStateEntry* entry : state.GetRunningRequestStateEntries()) {
    pages += kv.PagesNeeded(entry->mstate.internal_id, entry->num_tokens_to_compute());
  }
  return pages;
}

}  // namespace mlc_native
