#include "engine_debug.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "mlc_native/model.h"
#include "models/transformer.h"
#include "observe/step_profiler.h"
#include "support/check.h"
#include "support/error.h"
#include "support/json.h"
#include "support/machine_info.h"

namespace mlc_native {
namespace {

const char* ToString(RequestStateStatus status) {
  switch (status) {
    case RequestStateStatus::kPending:
      return "pending";
    case RequestStateStatus::kAlive:
      return "alive";
    case RequestStateStatus::kFinished:
      return "finished";
  }
  return "invalid";
}

void AuditEntry(const RequestStateEntry& entry, const PagedKvCache& kv, std::set<int64_t>* ids) {
  const int64_t id = entry.mstate.internal_id;
  const std::string& request = entry.rstate->request->id;
  MLC_CHECK(entry.num_tokens_to_compute() >= 0) << request;
  MLC_CHECK(!entry.finished() || id == RequestModelState::kNoId) << request << " is finished";
  MLC_CHECK(entry.drafts == nullptr || entry.status == RequestStateStatus::kAlive)
      << request << " has drafters and does not run";
  MLC_CHECK(entry.num_scored <= entry.num_to_score())
      << request << ": " << entry.num_scored << " rows scored of " << entry.num_to_score();
  if (id == RequestModelState::kNoId) {
    MLC_CHECK(entry.mstate.kv_len == 0) << request;
    return;
  }
  MLC_CHECK(ids->insert(id).second) << request << ": id " << id << " belongs to two sequences";
  MLC_CHECK(kv.length(id) == entry.mstate.kv_len)
      << request << ": " << kv.length(id) << " tokens in the cache, expected "
      << entry.mstate.kv_len;
  // Pages of the tokens in the cache, or of all tokens while some of them are still to be computed.
  // A single one may be the rest of what jump-forward has put in.
  const int64_t num_pages = std::ssize(kv.block_table(id));
  const bool complete = entry.status == RequestStateStatus::kAlive &&
                        entry.num_tokens_to_compute() == 1 && !entry.rstate->request->jumps();
  const int64_t num_known = std::max<int64_t>(std::ssize(entry.tokens), entry.mstate.kv_len);
  const int64_t num_covered = complete ? entry.mstate.kv_len : num_known;
  MLC_CHECK(num_pages <= kv.PagesNeededForNew(num_covered))
      << request << " holds " << num_pages << " pages for " << num_covered << " tokens";
}

void AuditRequest(RequestState& rstate) {
  const std::string& id = rstate.request->id;
  bool decodes = rstate.entries[0].waits_for_branches();
  for (const RequestStateEntry& leaf : rstate.leaves()) {
    const bool alive = leaf.status == RequestStateStatus::kAlive;
    // One that is embedded ends with the step that computes its last tokens.
    const bool ends = rstate.request->embedding && leaf.mstate.kv_in_flight > 0;
    MLC_CHECK(!alive || ends || leaf.length() > leaf.mstate.kv_len) << id;
    decodes = decodes || alive;
  }
  MLC_CHECK(decodes == rstate.in_running_queue) << id;
  MLC_CHECK((rstate.NextToPrefill() != nullptr) == rstate.in_waiting_queue) << id;
  MLC_CHECK(!rstate.all_leaves_finished()) << id << " is finished and still here";
}

void WriteEntry(const RequestStateEntry& entry, JsonWriter* json) {
  json->BeginObject()
      .Add("status", ToString(entry.status))
      .Add("parent_idx", entry.parent_idx)
      .Add("internal_id", entry.mstate.internal_id)
      .Add("num_tokens", entry.tokens.size())
      .Add("kv_len", entry.mstate.kv_len)
      .Add("num_pending", entry.pending_rows.size())
      .Add("num_generated", entry.num_generated())
      .Add("sits_out", entry.sits_out())
      .EndObject();
}

int64_t NumPinnedPages(const EngineStateObj& estate) {
  return estate.prefix_cache != nullptr ? estate.prefix_cache->num_pinned_pages() : 0;
}

// The members, without the braces.
void AddPageCounts(const EngineStateObj& estate, const PagedKvCache& kv, JsonWriter* json) {
  json->Add("kv_pages_total", kv.pool().num_total())
      .Add("kv_pages_used", kv.pool().num_used())
      .Add("kv_pages_free", kv.pool().num_free())
      .Add("kv_pages_cached", kv.pool().num_cached())
      .Add("kv_pages_pinned", NumPinnedPages(estate))
      .Add("num_sequences", kv.num_sequences())
      .Add("num_live_ids", estate.id_manager.num_live());
}

template <typename Queue>
void AddQueue(const char* name, const Queue& queue, JsonWriter* json) {
  json->Name(name).BeginArray();
  for (const RequestPtr& request : queue) json->Put(request->id);
  json->EndArray();
}

// {"kv_pages_total", "kv_pages_used", "kv_pages_free", "kv_pages_cached", "kv_pages_pinned",
// "num_sequences", "num_live_ids"}
std::string PagesJson(const EngineStateObj& estate, const PagedKvCache& kv) {
  JsonWriter json;
  AddPageCounts(estate, kv, &json.BeginObject());
  return json.EndObject().Take();
}

// Bytes: {"weights", "kv_pool", "kv_used", "workspace", "process_resident"}.
std::string MemoryJson(const ModelMetadata& model, const EngineConfig& config,
                       const PagedKvCache& kv) {
  const int64_t page_bytes = model.kv_bytes_per_token * kv.page_size();
  const int64_t workspace_bytes =
      model.workspace_bytes_per_token * *config.prefill_chunk_size +
      model.workspace_bytes_per_sequence *
          MaxLogitsRows(*config.max_num_sequence, *config.prefill_chunk_size);
  JsonWriter json;
  json.BeginObject()
      .Add("weights", model.weight_bytes)
      .Add("kv_pool", kv.pool().num_total() * page_bytes)
      .Add("kv_used", kv.pool().num_used() * page_bytes)
      .Add("workspace", workspace_bytes)
      .Add("process_resident", ResidentMemoryBytes())
      .EndObject();
  return json.Take();
}

// {"num_parameters", "weight_format", "weight_bytes", "kv_tokens", "kv_bytes", "kv_format",
// "compute", "unused_tensors"}
std::string LoadSummaryJson(const ModelMetadata& model, const PagedKvCache& kv) {
  const ModelDescription& description = model.description;
  const int64_t kv_tokens = kv.pool().num_total() * kv.page_size();
  JsonWriter json;
  json.BeginObject()
      .Add("num_parameters", description.num_parameters)
      .Add("weight_format", description.weight_format)
      .Add("weight_bytes", model.weight_bytes)
      .Add("kv_tokens", kv_tokens)
      .Add("kv_bytes", kv_tokens * model.kv_bytes_per_token)
      .Add("kv_format", description.kv_format)
      .Add("compute", description.compute)
      .Name("unused_tensors")
      .BeginArray();
  for (const std::string& name : description.unused_tensors) json.Put(name);
  json.EndArray().EndObject();
  return json.Take();
}

// For each leaf of the prefix cache: the tokens up to its end and the pages that hold them.
std::string PrefixCacheJson(const EngineStateObj& estate) {
  JsonWriter json;
  const auto add = [&json](const char* name, const std::vector<int32_t>& values) {
    json.Name(name).BeginArray();
    for (const int32_t value : values) json.Put(value);
    json.EndArray();
  };
  json.BeginObject().Name("paths").BeginArray();
  if (estate.prefix_cache != nullptr) {
    for (const PrefixCache::Path& path : estate.prefix_cache->Paths()) {
      json.BeginObject();
      add("token_ids", path.tokens);
      add("page_ids", path.page_ids);
      json.EndObject();
    }
  }
  return json.EndArray().EndObject().Take();
}

// The page counts, the queues and every sequence of every live request.
std::string StateJson(const EngineStateObj& estate, const PagedKvCache& kv) {
  JsonWriter json;
  AddPageCounts(estate, kv, &json.BeginObject());
  json.Add("num_draft_failures", estate.metrics.spec_decode.num_failures);
  AddQueue("waiting_queue", estate.waiting_queue, &json);
  AddQueue("running_queue", estate.running_queue, &json);
  json.Name("requests").BeginObject();
  for (const auto& [id, rstate] : estate.request_states) {
    json.Name(id).BeginArray();
    for (const RequestStateEntry& entry : rstate->entries) WriteEntry(entry, &json);
    json.EndArray();
  }
  return json.EndObject().EndObject().Take();
}

}  // namespace

void DebugFunctions::Register(const std::string& name, const std::string& help, Function function) {
  const bool is_new = functions_.emplace(name, Entry{help, std::move(function)}).second;
  MLC_CHECK(is_new) << name;
}

std::string DebugFunctions::Call(const std::string& name) const {
  const auto found = functions_.find(name);
  if (found != functions_.end()) return found->second.function();
  std::string message = "There is no debug function \"" + name + "\"; there are:";
  for (const auto& [known, entry] : functions_) message += "\n  " + known + ": " + entry.help;
  throw InvalidRequest("name", message);
}

void AuditState(EngineStateObj& estate, const PagedKvCache& kv) {
  if (estate.prefix_cache == nullptr) {
    kv.Audit();
  } else {
    estate.prefix_cache->Audit();
    kv.Audit(estate.prefix_cache->CountHolders(), estate.prefix_cache->CountHoldersOfSlots());
  }
  std::set<int64_t> ids;
  size_t num_waiting = 0;
  size_t num_running = 0;
  for (const auto& [id, rstate] : estate.request_states) {
    AuditRequest(*rstate);
    for (const RequestStateEntry& entry : rstate->entries) AuditEntry(entry, kv, &ids);
    num_waiting += rstate->in_waiting_queue ? 1 : 0;
    num_running += rstate->in_running_queue ? 1 : 0;
  }
  MLC_CHECK(estate.deadlines.size() <= std::ssize(estate.request_states))
      << estate.deadlines.size() << " deadlines";
  const auto num_ids = static_cast<int64_t>(ids.size());
  MLC_CHECK(num_ids == estate.id_manager.num_live() && num_ids == kv.num_sequences())
      << num_ids << " sequences, " << estate.id_manager.num_live() << " live ids, "
      << kv.num_sequences() << " in the cache";
  MLC_CHECK(num_waiting == estate.waiting_queue.size()) << num_waiting;
  MLC_CHECK(num_running == estate.running_queue.size()) << num_running;
  MLC_CHECK(!ids.empty() || kv.pool().num_used() == NumPinnedPages(estate))
      << kv.pool().num_used() << " pages in use by no sequence, " << NumPinnedPages(estate)
      << " pinned";
}

void RegisterDebugFunctions(const DebugSources& sources, DebugFunctions* functions) {
  functions->Register("dump_state", "queues, and every sequence of every live request",
                      [sources] { return StateJson(sources.state, sources.kv); });
  functions->Register("dump_prefix_cache", "tokens and pages of the prefix cache",
                      [sources] { return PrefixCacheJson(sources.state); });
  functions->Register("audit_pages", "checks pages, ids and queues; page counts", [sources] {
    AuditState(sources.state, sources.kv);
    return PagesJson(sources.state, sources.kv);
  });
  functions->Register(
      "memory_summary", "bytes of weights, KV cache, workspace and process",
      [sources] { return MemoryJson(sources.model.metadata(), sources.config, sources.kv); });
  functions->Register("load_summary", "what is loaded: parameters, formats, tokens and bytes",
                      [sources] { return LoadSummaryJson(sources.model.metadata(), sources.kv); });
  functions->Register("profiler_start", "times the phases of every step from now on",
                      [sources]() -> std::string {
                        sources.profiler.Start();
                        return "{}";
                      });
  functions->Register("profiler_stop", "count, sum and maximum of each phase since the start",
                      [sources] { return sources.profiler.Stop(); });
  auto* decoder = dynamic_cast<Transformer*>(&sources.model);
  if (decoder == nullptr) return;
  functions->Register("kernel_profile_start", "times the kernels of every step from now on",
                      [decoder]() -> std::string {
                        decoder->StartKernelProfile();
                        return "{}";
                      });
  functions->Register("kernel_profile_stop",
                      "what each kernel has done since the start, and the waits of its threads",
                      [decoder] { return decoder->StopKernelProfile(); });
}

}  // namespace mlc_native
