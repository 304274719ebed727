#include "step/sequence_life.h"

#include <algorithm>
#include <new>
#include <ranges>
#include <span>

#include "engine_state.h"
#include "kv/paged_kv_cache.h"
#include "observe/event_trace.h"
#include "step/batch_drafter.h"
#include "support/check.h"
#include "support/error.h"

namespace mlc_native {
namespace {

void Trace(StepContext& context, const RequestState& rstate, const char* event) {
  if (context.trace != nullptr) context.trace->AddEvent(rstate.request->id, event);
}

void CloseQueueWait(StepContext& context, RequestState& rstate) {
  if (!rstate.queue_wait_traced) return;
  Trace(context, rstate, "finish queue wait");
  rstate.queue_wait_traced = false;
}

bool DropProgressOf(StepContext& context, const Request& request) {
  bool dropped = false;
  for (RequestStateEntry& entry : context.state.GetRequestState(request.id).entries) {
    if (!entry.waits_for_prefill() || entry.mstate.internal_id == RequestModelState::kNoId) {
      continue;
    }
    ReleaseSequence(context, entry);
    dropped = true;
  }
  return dropped;
}

}  // namespace

void StartSequence(StepContext& context, RequestStateEntry& entry, int64_t num_cached,
                   TimePoint now) {
  const int64_t id = entry.mstate.internal_id = context.state.id_manager.GetNewId();
  if (num_cached == 0) {
    context.kv.AddSequence(id);
  } else {
    context.state.prefix_cache->StartSequence(id, std::span(entry.tokens).first(num_cached),
                                              entry.rstate->request->cache_space());
    entry.mstate.kv_len = num_cached;
    Trace(context, *entry.rstate, "prefix cache hit");
  }
  if (context.kv.has_states() && context.state.prefix_cache != nullptr) {
    entry.mstate.divergence = context.state.prefix_cache->NumMatched(
        std::span(entry.tokens).first(entry.max_cached()), entry.rstate->request->cache_space());
  }
  context.state.MarkStarted(*entry.rstate, now);
  CloseQueueWait(context, *entry.rstate);
}

void CachePrefix(StepContext& context, const RequestStateEntry& entry) {
  if (context.state.prefix_cache == nullptr) return;
  const std::span<const int32_t> collected =
      std::span(entry.tokens).first(entry.mstate.num_collected());
  context.state.prefix_cache->Insert(entry.mstate.internal_id, collected,
                                     entry.rstate->request->cache_space());
}

void PinPrompt(StepContext& context, RequestState& rstate) {
  if (context.state.prefix_cache == nullptr) return;
  try {
    context.state.prefix_cache->Pin(rstate.request->prompt_token_ids, rstate.request->cache_space(),
                                    rstate.request->id);
    rstate.metrics.pinned_tokens = rstate.request->prompt_len();
  } catch (const InvalidRequest&) {
    // The usage reports it.
  } catch (const std::bad_alloc&) {
  }
}

void ReleaseSequence(StepContext& context, RequestStateEntry& entry) {
  const int64_t id = entry.mstate.internal_id;
  if (id == RequestModelState::kNoId) return;
  if (context.kv.HasSequence(id)) {
    context.kv.PopN(id, entry.mstate.kv_in_flight);  // and what is reserved
    if (context.state.prefix_cache != nullptr) context.kv.KeepState(id);
    CachePrefix(context, entry);
    context.kv.RemoveSequence(id);
    if (context.state.prefix_cache != nullptr) context.state.prefix_cache->EvictExcess();
  }
  if (context.batch_drafter != nullptr) context.batch_drafter->Forget(id);
  entry.mstate = RequestModelState();
  context.state.id_manager.RecycleId(id);
}

void ForkChildren(StepContext& context, RequestStateEntry& root) {
  const int64_t prompt_len = root.mstate.kv_len;
  for (int index : root.child_indices) {
    RequestStateEntry& child = root.rstate->entries[index];
    child.tokens = root.tokens;
    child.mstate.internal_id = context.state.id_manager.GetNewId();
    context.kv.ForkSequence(root.mstate.internal_id, child.mstate.internal_id, prompt_len);
    if (context.batch_drafter != nullptr) {
      context.batch_drafter->Fork(root.mstate.internal_id, child.mstate.internal_id, child.tokens);
    }
    child.mstate.kv_len = prompt_len;
    child.num_prompt_counted = prompt_len;
    child.status = RequestStateStatus::kAlive;
  }
  root.status = RequestStateStatus::kAlive;
  ReleaseSequence(context, root);  // the pages live on in the children
}

void Preempt(StepContext& context, RequestStateEntry& entry) {
  RequestState& rstate = *entry.rstate;
  MLC_CHECK(entry.status == RequestStateStatus::kAlive) << rstate.request->id;
  Trace(context, rstate, "preempt");
  ReleaseSequence(context, entry);
  entry.drafts.reset();
  entry.status = RequestStateStatus::kPending;
  if (!rstate.any_leaf_alive()) context.state.RemoveFromRunning(rstate);
  context.state.PushWaitingFront(rstate);
  context.state.running_rsentries_changed = true;
  ++context.state.metrics.num_preemptions;
  ++rstate.metrics.num_preemptions;
  if (context.trace != nullptr && !rstate.queue_wait_traced) {
    Trace(context, rstate, "start queue wait");
    rstate.queue_wait_traced = true;
  }
}

bool DropPrefillProgress(StepContext& context) {
  const int64_t num_running = std::ssize(context.state.GetRunningRequestStateEntries());
  if (context.kv.num_sequences() == num_running) return false;
  return std::ranges::any_of(context.state.waiting_queue, [&](const RequestPtr& request) {
    return DropProgressOf(context, *request);
  });
}

bool DropLastProgress(StepContext& context) {
  return std::ranges::any_of(
      std::views::reverse(context.state.waiting_queue),
      [&](const RequestPtr& request) { return DropProgressOf(context, *request); });
}

void FinishEntry(StepContext& context, RequestStateEntry& leaf, FinishReason reason) {
  leaf.finish_reason = reason;
  leaf.status = RequestStateStatus::kFinished;
  if (leaf.drafts != nullptr) leaf.drafts->OnEnd(leaf.tokens, leaf.rstate->request->prompt_len());
  leaf.drafts.reset();
  leaf.slow.reset();
  ReleaseSequence(context, leaf);
  context.state.running_rsentries_changed = true;
}

void CountToken(StepContext& context, RequestStateEntry& leaf, bool is_first, TimePoint now) {
  RequestMetrics& metrics = leaf.rstate->metrics;
  ++metrics.completion_tokens;
  if (!is_first) {
    ++metrics.decode_tokens;
    context.state.metrics.inter_token_latency_s.Observe(
        std::chrono::duration<double>(now - leaf.last_token_time_point).count());
  } else if (++metrics.num_answers == 1) {
    metrics.prefill_end_time_point = now;
    context.state.metrics.ttft_s.Observe(metrics.ttft_s());
  }
  leaf.last_token_time_point = now;
  metrics.last_token_time_point = now;
}

void EndRequest(StepContext& context, RequestState& rstate, FinishReason reason,
                const std::string& message) {
  CloseQueueWait(context, rstate);
  if (reason == FinishReason::kError) rstate.error_message = message;
  for (RequestStateEntry& leaf : rstate.leaves()) {
    if (!leaf.finished()) {
      FinishEntry(context, leaf, reason);
    } else if (!leaf.finish_reason_delivered) {
      leaf.finish_reason = reason;  // the tokens that came with the other reason were lost
    }
  }
  RequestStateEntry& first = rstate.entries[0];
  first.status = RequestStateStatus::kFinished;
  ReleaseSequence(context, first);  // of a root that is not forked yet
  context.state.MarkDirty(rstate);
}

}  // namespace mlc_native
