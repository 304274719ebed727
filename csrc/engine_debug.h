// What Engine::DebugCall shows and checks. Engine's thread only.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "config/config.h"
#include "engine_state.h"
#include "kv/paged_kv_cache.h"

namespace mlc_native {

// Functions by name. Each call looks its own name up.
class DebugFunctions {
 public:
  using Function = std::function<std::string()>;  // answers with JSON

  void Register(const std::string& name, const std::string& help, Function function);
  // Throws InvalidRequest for an unknown name, with a line on each that there is.
  std::string Call(const std::string& name) const;

 private:
  struct Entry {
    std::string help;  // one line
    Function function;
  };
  std::map<std::string, Entry> functions_;
};

// Reference counts against their holders, the prefix cache, ids against sequences, queues against
// states; at idle no id is in use and no page but the pinned ones. Throws InternalError.
void AuditState(EngineStateObj& estate, const PagedKvCache& kv);

// {"kv_pages_total", "kv_pages_used", "kv_pages_free", "kv_pages_cached", "kv_pages_pinned",
// "num_sequences", "num_live_ids"}
std::string PagesJson(const EngineStateObj& estate, const PagedKvCache& kv);

// Bytes: {"weights", "kv_pool", "kv_used", "workspace", "process_resident"}. `config` is resolved.
std::string MemoryJson(const ModelMetadata& model, const EngineConfig& config,
                       const PagedKvCache& kv);

// {"num_parameters", "weight_format", "weight_bytes", "kv_tokens", "kv_bytes", "kv_format",
// "compute", "unused_tensors"}
std::string LoadSummaryJson(const ModelMetadata& model, const PagedKvCache& kv);

// For each leaf of the prefix cache: the tokens up to its end and the pages that hold them.
std::string PrefixCacheJson(const EngineStateObj& estate);

// The page counts, the queues and every sequence of every live request.
std::string StateJson(const EngineStateObj& estate, const PagedKvCache& kv);

}  // namespace mlc_native
