// What Engine::DebugCall shows and checks. Engine's thread only.
#pragma once

#include <string>

#include "engine_state.h"
#include "kv/paged_kv_cache.h"

namespace mlc_native {

// Reference counts against block tables, ids against sequences, queues against states; at idle no
// page and no id is in use. Throws InternalError.
void AuditState(EngineStateObj& estate, const PagedKvCache& kv);

// {"kv_pages_total", "kv_pages_used", "kv_pages_free", "num_sequences", "num_live_ids"}
std::string PagesJson(const EngineStateObj& estate, const PagedKvCache& kv);

// The page counts, the queues and every sequence of every live request.
std::string StateJson(const EngineStateObj& estate, const PagedKvCache& kv);

}  // namespace mlc_native
