// What Engine::DebugCall and Engine::AuditPages show and check. Engine's thread only.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "engine_state.h"
#include "kv/paged_kv_cache.h"
#include "mlc_native/config.h"

namespace mlc_native {

class Model;
class StepProfiler;

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

// What the debug functions refer to; all of it outlives them.
struct DebugSources {
  EngineStateObj& state;
  const PagedKvCache& kv;
  Model& model;
  const EngineConfig& config;  // resolved
  StepProfiler& profiler;
};

// Registers every debug function.
void RegisterDebugFunctions(const DebugSources& sources, DebugFunctions* functions);

}  // namespace mlc_native
