#include "engine_state.h"

#include <algorithm>
#include <utility>

#include "support/check.h"

namespace mlc_native {

int64_t EngineInternalIDManager::GetNewId() {
  if (available_ids_.empty()) {
    // Room for every id, so that recycling cannot fail.
    const auto num_ids = static_cast<size_t>(id_cnt_) + 1;
    if (available_ids_.capacity() < num_ids) available_ids_.reserve(2 * num_ids);
    live_.push_back(true);
    return id_cnt_++;
  }
  const int64_t id = available_ids_.back();
  available_ids_.pop_back();
  live_[id] = true;
  return id;
}

void EngineInternalIDManager::RecycleId(int64_t id) {
  MLC_CHECK(id >= 0 && id < id_cnt_ && live_[id]) << "id " << id << " is not live";
  available_ids_.push_back(id);
  live_[id] = false;
}

void EngineInternalIDManager::Reset() { *this = EngineInternalIDManager(); }

void EngineStateObj::Reset() {
  running_queue.clear();
  waiting_queue.clear();
  request_states.clear();
  deadlines.Clear();
  num_arrived = 0;
  id_manager.Reset();
  metrics.Reset();
  if (prefix_cache != nullptr) prefix_cache->Clear();
  running_rsentries_changed = true;
  num_jump_forward_requests = 0;
  num_drafting_requests = 0;
  num_grammar_requests = 0;
  decode_costs = DecodeCosts();
  cached_running_rsentries_.clear();
  spec_draft_length = 0;
  disaggregation = false;
  postproc_workspace = ActionPostProcessWorkspace();
}

RequestState* EngineStateObj::FindRequestState(const std::string& request_id) {
  const auto found = request_states.find(request_id);
  return found == request_states.end() ? nullptr : found->second.get();
}

RequestState& EngineStateObj::GetRequestState(const std::string& request_id) {
  RequestState* rstate = FindRequestState(request_id);
  MLC_CHECK(rstate != nullptr) << "request " << request_id << " is not live";
  return *rstate;
}

const std::vector<RequestStateEntry*>& EngineStateObj::GetRunningRequestStateEntries() {
  if (!running_rsentries_changed) return cached_running_rsentries_;
  cached_running_rsentries_.clear();
  for (const RequestPtr& request : running_queue) {
    for (RequestStateEntry& leaf : GetRequestState(request->id).leaves()) {
      if (leaf.status == RequestStateStatus::kAlive) cached_running_rsentries_.push_back(&leaf);
    }
  }
  running_rsentries_changed = false;
  return cached_running_rsentries_;
}

RequestState& EngineStateObj::Admit(std::shared_ptr<RequestState> rstate) {
  rstate->arrival = num_arrived;
  const auto position = request_states.emplace(rstate->request->id, std::move(rstate)).first;
  RequestState& admitted = *position->second;
  try {
    deadlines.Add(admitted);
    PushWaiting(admitted);
  } catch (...) {
    deadlines.Remove(admitted);
    request_states.erase(position);
    throw;
  }
  num_jump_forward_requests += admitted.request->jumps() ? 1 : 0;
  num_drafting_requests += admitted.may_draft ? 1 : 0;
  num_grammar_requests += admitted.request->grammar != nullptr ? 1 : 0;
  ++num_arrived;
  return admitted;
}

void EngineStateObj::MarkStarted(RequestState& rstate, TimePoint now) {
  if (rstate.started) return;
  rstate.metrics.start_time_point = now;
  deadlines.Started(rstate);
  rstate.started = true;
  rstate.queue_slot.Release();
}

EngineStateObj::Place EngineStateObj::PlaceOfNew(const Request& request) {
  const auto may_overtake = [&request](const RequestPtr& other) {
    return request.generation_cfg.priority < other->generation_cfg.priority;
  };
  Place place = waiting_queue.end();
  while (place != waiting_queue.begin() && may_overtake(*std::prev(place))) --place;
  for (; place != waiting_queue.end(); ++place) {
    RequestState& overtaken = GetRequestState((*place)->id);
    if (overtaken.started || overtaken.num_overtakes == kMaxOvertakes) continue;
    ++overtaken.num_overtakes;
    break;
  }
  return place;
}

EngineStateObj::Place EngineStateObj::PlaceOfPreempted(const Request& request) {
  return std::find_if(waiting_queue.begin(), waiting_queue.end(), [&](const RequestPtr& other) {
    return other->generation_cfg.priority >= request.generation_cfg.priority ||
           !GetRequestState(other->id).started;
  });
}

void EngineStateObj::PushWaiting(RequestState& rstate) {
  if (rstate.in_waiting_queue) return;
  waiting_queue.insert(PlaceOfNew(*rstate.request), rstate.request);
  rstate.in_waiting_queue = true;
}

void EngineStateObj::PushWaitingFront(RequestState& rstate) {
  if (rstate.in_waiting_queue) return;
  waiting_queue.insert(PlaceOfPreempted(*rstate.request), rstate.request);
  rstate.in_waiting_queue = true;
}

void EngineStateObj::PushRunning(RequestState& rstate) {
  if (rstate.in_running_queue) return;
  running_queue.push_back(rstate.request);
  rstate.in_running_queue = true;
}

void EngineStateObj::PopPrefilled() {
  while (!waiting_queue.empty()) {
    RequestState& head = GetRequestState(waiting_queue.front()->id);
    if (head.NextToPrefill() != nullptr) return;
    head.in_waiting_queue = false;
    waiting_queue.pop_front();
  }
}

void EngineStateObj::RemoveFromWaiting(RequestState& rstate) {
  if (!rstate.in_waiting_queue) return;
  std::erase(waiting_queue, rstate.request);
  rstate.in_waiting_queue = false;
}

void EngineStateObj::RemoveFromRunning(RequestState& rstate) {
  if (!rstate.in_running_queue) return;
  // Preemption takes the last one, so the search starts there.
  const auto found = std::find(running_queue.rbegin(), running_queue.rend(), rstate.request);
  MLC_CHECK(found != running_queue.rend()) << rstate.request->id << " does not run";
  running_queue.erase(std::next(found).base());
  rstate.in_running_queue = false;
}

void EngineStateObj::Erase(std::vector<const Request*>* finished) {
  if (finished->empty()) return;
  std::sort(finished->begin(), finished->end());
  const auto is_finished = [finished](const RequestPtr& request) {
    return std::binary_search(finished->begin(), finished->end(), request.get());
  };
  bool any_running = false;
  bool any_waiting = false;
  for (const Request* request : *finished) {
    const RequestState& rstate = GetRequestState(request->id);
    any_running = any_running || rstate.in_running_queue;
    any_waiting = any_waiting || rstate.in_waiting_queue;
  }
  if (any_running) std::erase_if(running_queue, is_finished);
  if (any_waiting) std::erase_if(waiting_queue, is_finished);
  running_rsentries_changed = true;
  for (const Request* request : *finished) {
    const auto position = request_states.find(request->id);
    deadlines.Remove(*position->second);
    num_jump_forward_requests -= request->jumps() ? 1 : 0;
    num_drafting_requests -= position->second->may_draft ? 1 : 0;
    num_grammar_requests -= request->grammar != nullptr ? 1 : 0;
    request_states.erase(position);
  }
  finished->clear();
}

void EngineStateObj::MarkDirty(RequestState& rstate) {
  if (rstate.is_dirty) return;
  postproc_workspace.dirty.push_back(&rstate);
  rstate.is_dirty = true;
}

}  // namespace mlc_native
