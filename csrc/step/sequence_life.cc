#include "step/sequence_life.h"

#include <new>
#include <span>

#include "support/check.h"
#include "support/error.h"

namespace mlc_native {
namespace {

void Trace(const EngineParts& parts, const RequestState& rstate, const char* event) {
  if (parts.trace != nullptr) parts.trace->AddEvent(rstate.request->id, event);
}

void CloseQueueWait(const EngineParts& parts, RequestState& rstate) {
  if (!rstate.queue_wait_traced) return;
  Trace(parts, rstate, "finish queue wait");
  rstate.queue_wait_traced = false;
}

}  // namespace

void StartSequence(const EngineState& estate, const EngineParts& parts, RequestStateEntry& entry,
                   int64_t num_cached, TimePoint now) {
  const int64_t id = entry.mstate.internal_id = estate->id_manager.GetNewId();
  if (num_cached == 0) {
    parts.kv->AddSequence(id);
  } else {
    estate->prefix_cache->StartSequence(id, std::span(entry.tokens).first(num_cached));
    entry.mstate.kv_len = num_cached;
    Trace(parts, *entry.rstate, "prefix cache hit");
  }
  estate->MarkStarted(*entry.rstate, now);
  CloseQueueWait(parts, *entry.rstate);
}

void CachePrefix(const EngineState& estate, const RequestStateEntry& entry) {
  if (estate->prefix_cache == nullptr) return;
  const std::span<const int32_t> collected =
      std::span(entry.tokens).first(entry.mstate.num_collected());
  estate->prefix_cache->Insert(entry.mstate.internal_id, collected);
}

void PinPrompt(const EngineState& estate, RequestState& rstate) {
  if (estate->prefix_cache == nullptr) return;
  try {
    estate->prefix_cache->Pin(rstate.request->prompt_token_ids);
    rstate.metrics.pinned_tokens = rstate.request->prompt_len();
  } catch (const InvalidRequest&) {
    // The usage reports it.
  } catch (const std::bad_alloc&) {
  }
}

void ReleaseSequence(const EngineState& estate, const EngineParts& parts,
                     RequestStateEntry& entry) {
  const int64_t id = entry.mstate.internal_id;
  if (id == RequestModelState::kNoId) return;
  if (parts.kv->HasSequence(id)) {
    parts.kv->PopN(id, entry.mstate.kv_under_way);  // and what is reserved
    CachePrefix(estate, entry);
    parts.kv->RemoveSequence(id);
    if (estate->prefix_cache != nullptr) estate->prefix_cache->EvictExcess();
  }
  entry.mstate = RequestModelState();
  estate->id_manager.RecycleId(id);
}

void ForkChildren(const EngineState& estate, const EngineParts& parts, RequestStateEntry& root) {
  const int64_t prompt_len = root.mstate.kv_len;
  for (int index : root.child_indices) {
    RequestStateEntry& child = root.rstate->entries[index];
    child.tokens = root.tokens;
    child.mstate.internal_id = estate->id_manager.GetNewId();
    parts.kv->ForkSequence(root.mstate.internal_id, child.mstate.internal_id, prompt_len);
    child.mstate.kv_len = prompt_len;
    child.num_prompt_counted = prompt_len;
    child.status = RequestStateStatus::kAlive;
  }
  root.status = RequestStateStatus::kAlive;
  ReleaseSequence(estate, parts, root);  // the pages live on in the children
}

void Preempt(const EngineState& estate, const EngineParts& parts, RequestStateEntry& entry) {
  RequestState& rstate = *entry.rstate;
  MLC_CHECK(entry.status == RequestStateStatus::kAlive) << rstate.request->id;
  Trace(parts, rstate, "preempt");
  ReleaseSequence(estate, parts, entry);
  entry.status = RequestStateStatus::kPending;
  if (!rstate.any_leaf_alive()) estate->RemoveFromRunning(rstate);
  estate->PushWaitingFront(rstate);
  estate->running_rsentries_changed = true;
  ++estate->metrics.num_preemptions;
  if (parts.trace != nullptr && !rstate.queue_wait_traced) {
    Trace(parts, rstate, "start queue wait");
    rstate.queue_wait_traced = true;
  }
}

bool DropPrefillProgress(const EngineState& estate, const EngineParts& parts) {
  const int64_t num_running = std::ssize(estate->GetRunningRequestStateEntries());
  if (parts.kv->num_sequences() == num_running) return false;
  bool dropped = false;
  for (const RequestPtr& request : estate->waiting_queue) {
    for (RequestStateEntry& entry : estate->GetRequestState(request->id).entries) {
      if (!entry.waits_for_prefill() || entry.mstate.internal_id == RequestModelState::kNoId) {
        continue;
      }
      ReleaseSequence(estate, parts, entry);
      dropped = true;
    }
    if (dropped) return true;
  }
  return false;
}

void FinishEntry(const EngineState& estate, const EngineParts& parts, RequestStateEntry& leaf,
                 FinishReason reason) {
  leaf.finish_reason = reason;
  leaf.status = RequestStateStatus::kFinished;
  ReleaseSequence(estate, parts, leaf);
  estate->running_rsentries_changed = true;
}

void EndRequest(const EngineState& estate, const EngineParts& parts, RequestState& rstate,
                FinishReason reason, const std::string& message) {
  CloseQueueWait(parts, rstate);
  if (reason == FinishReason::kError) rstate.error_message = message;
  for (RequestStateEntry& leaf : rstate.leaves()) {
    if (!leaf.finished()) {
      FinishEntry(estate, parts, leaf, reason);
    } else if (!leaf.finish_reason_delivered) {
      leaf.finish_reason = reason;  // the tokens that came with the other reason were lost
    }
  }
  RequestStateEntry& first = rstate.entries[0];
  first.status = RequestStateStatus::kFinished;
  ReleaseSequence(estate, parts, first);  // of a root that is not forked yet
  estate->AddNews(rstate);
}

}  // namespace mlc_native
