// EngineStateObj: everything the engine knows between two steps. Queues, states, ids, metrics.
//
// Invariants between steps: every live request is in request_states. It is in waiting_queue while
// an entry of it has tokens to prefill. It is in running_queue while an entry of it decodes, or
// while its branches wait for the step of their prompt to be collected; a request with n > 1 can be
// in both after a preemption or while answers of it wait. At most one waiting entry is partly
// prefilled: the first one in the queue that holds pages. Internal ids are unique among live
// sequences. Queues change only through the methods below, which keep the flags of RequestState.
// Owned by the engine; engine's thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "draft/draft_length.h"
#include "kv/prefix_cache.h"
#include "mlc_native/data.h"
#include "observe/metrics.h"
#include "request/deadline_queue.h"
#include "request/request.h"
#include "request/request_state.h"

namespace mlc_native {

// Hands out the sequence ids of the KV cache. Recycled ids are reused, the one recycled last first.
class EngineInternalIDManager {
 public:
  int64_t GetNewId();
  // Throws InternalError when the id is not live.
  void RecycleId(int64_t id);
  void Reset();
  int64_t num_live() const { return id_cnt_ - static_cast<int64_t>(available_ids_.size()); }

 private:
  std::vector<int64_t> available_ids_;
  std::vector<bool> live_;  // index = id
  int64_t id_cnt_ = 0;
};

// Buffers of the post-process that are reused from step to step.
struct ActionPostProcessWorkspace {
  std::vector<RequestState*> dirty;          // requests to process, each once (is_dirty)
  std::vector<const Request*> finished;      // of those, the ones that ended
  std::vector<RequestStreamOutput> outputs;  // not delivered yet
  std::vector<int32_t> released_ids;
  std::string released_bytes;
};

struct EngineStateObj {
  static constexpr int kMaxOvertakes = 8;

  std::vector<RequestPtr> running_queue;
  std::deque<RequestPtr> waiting_queue;
  // Shared with the steps in flight that compute for them.
  std::unordered_map<std::string, std::shared_ptr<RequestState>> request_states;
  DeadlineQueue deadlines;  // of request_states
  int64_t num_arrived = 0;  // requests ever admitted
  EngineInternalIDManager id_manager;
  EngineMetrics metrics;
  std::unique_ptr<PrefixCache> prefix_cache;  // null when it is off
  bool running_rsentries_changed = true;
  int64_t num_jump_forward_requests = 0;  // live ones that may jump
  int64_t num_drafting_requests = 0;      // live ones that may have draft tokens
  int64_t num_grammar_requests = 0;       // live ones with a grammar
  DecodeCosts decode_costs;
  // MLC-LLM's state has these two. Nothing sets them: the length of a draft is chosen for each
  // sequence, and no engine splits prefill and decode with another.
  int spec_draft_length = 0;
  bool disaggregation = false;
  RequestStreamCallback request_stream_callback_;
  ActionPostProcessWorkspace postproc_workspace;

  // Clears all but the callback. The caller has freed the sequences.
  void Reset();
  // Throws InternalError when the request is not live.
  RequestState& GetRequestState(const std::string& request_id);
  // Null when the request is not live.
  RequestState* FindRequestState(const std::string& request_id);
  // Alive entries without children, each with at least one token to compute, in queue order. Cached
  // until running_rsentries_changed is set.
  const std::vector<RequestStateEntry*>& GetRunningRequestStateEntries();

  // A new request becomes live and waits.
  RequestState& Admit(std::shared_ptr<RequestState> rstate);
  // The first work on the tokens of a request begins.
  void MarkStarted(RequestState& rstate, TimePoint now);

  // A no-op when the request is in that queue already.
  //
  // Where a new request waits is decided here, once: behind all requests of its priority or a
  // higher one, behind all that have started, and then before the first request of a lower priority
  // that has been overtaken fewer than kMaxOvertakes times. So requests of one priority never
  // overtake each other. A request with p requests before it is overtaken by a bounded number of
  // later ones: by kMaxOvertakes for each request, among those p and itself, of a lower priority
  // than the newcomer.
  void PushWaiting(RequestState& rstate);
  // For a preempted request: before all requests except started ones of a higher priority.
  void PushWaitingFront(RequestState& rstate);
  void PushRunning(RequestState& rstate);
  // Drops the requests at the head that have nothing to prefill any more.
  void PopPrefilled();
  // Both do nothing for a request that is not in the queue.
  void RemoveFromWaiting(RequestState& rstate);
  void RemoveFromRunning(RequestState& rstate);
  // Takes requests out of both queues and out of request_states; their pages are free already.
  // Clears the list. Allocates nothing, so an end cannot fail.
  void Erase(std::vector<const Request*>* finished);
  // The next post-process processes the request.
  void MarkDirty(RequestState& rstate);

 private:
  using Place = std::deque<RequestPtr>::iterator;
  Place PlaceOfNew(const Request& request);
  Place PlaceOfPreempted(const Request& request);

  std::vector<RequestStateEntry*> cached_running_rsentries_;
};

// The owning handle of an EngineStateObj, never null. Functions take the EngineStateObj itself.
class EngineState {
 public:
  EngineState() : obj_(std::make_shared<EngineStateObj>()) {}
  EngineStateObj* operator->() const { return obj_.get(); }
  EngineStateObj& operator*() const { return *obj_; }

 private:
  std::shared_ptr<EngineStateObj> obj_;
};

}  // namespace mlc_native
