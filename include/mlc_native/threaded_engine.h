// ThreadedEngine: a thread-safe shell around Engine. One command channel in, one output channel
// out.
//
// Two loops serve it: the background loop alone touches the engine, the stream-back loop alone
// calls the callback. Start and Stop run them on threads of the ThreadedEngine; a host that brings
// threads of its own runs RunBackgroundLoop and RunBackgroundStreamBackLoop on them, ends both with
// ExitBackgroundLoop and joins them. Any thread may call the other methods. No lock is held while
// calling the engine, the model or a callback.
//
// Failures: Reload, Unload, Reset and Call block until done and rethrow what failed. They throw
// InvalidRequest if no background loop answers (not started after some seconds, exited, left behind
// by a fork) and if the background loop itself calls them. A configuration that is wrong by itself
// is refused before anything is unloaded; a load that fails afterwards leaves the engine unloaded.
// Requests to an unloaded engine end at once with finish reason "error". A callback that throws
// loses only its own call; the loop goes on.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "mlc_native/config.h"
#include "mlc_native/data.h"
#include "mlc_native/detail/export.h"
#include "mlc_native/engine.h"

namespace mlc_native {

// What other threads ask of the background loop.
enum class InstructionKind {
  kAddRequest,
  kAbortRequest,
  kAbortAllRequests,
  kReloadEngine,
  kUnloadEngine,
  kResetEngine,
  kCallEngine,
  kDebugCallFuncOnAllAllWorker,
};

class MLC_NATIVE_API ThreadedEngine {
 public:
  static std::unique_ptr<ThreadedEngine> Create(EngineFactory factory = Engine::Create);
  // Stops.
  virtual ~ThreadedEngine() = default;

  // Called once, before everything else. `callback` runs on the stream-back thread with all outputs
  // that have queued up. `log` is that of every engine that is loaded, too.
  virtual void InitThreadedEngine(std::string device, RequestStreamCallback callback,
                                  std::shared_ptr<EventTraceRecorder> trace_recorder,
                                  Log log = {}) = 0;

  // Runs the two loops on threads of this object. Throws InvalidConfig if they run already. After
  // ExitBackgroundLoop it only delivers the outputs that are left.
  virtual void Start() = 0;
  // ExitBackgroundLoop, then waits until both loops have returned. Idempotent. Throws
  // InvalidRequest when it is called on one of the loops, which would wait for itself.
  virtual void Stop() = 0;

  virtual void RunBackgroundLoop() = 0;
  virtual void RunBackgroundStreamBackLoop() = 0;
  // Ends every live request with a final output ("abort"), delivers all outputs, then both loops
  // return; does not wait for that. Idempotent, and at any time: also before the loops have
  // started, during Reload (which is finished first) and from a callback.
  virtual void ExitBackgroundLoop() = 0;

  // Blocks until the background loop has loaded the model. Requests of the old model are aborted.
  // `progress` runs on the background loop's thread.
  virtual void Reload(const std::string& engine_config_json, LoadProgress progress = {}) = 0;
  virtual void Unload() = 0;
  // Aborts all requests and clears metrics; blocks until done.
  virtual void Reset() = 0;

  // Validates on the caller's thread against the loaded model and compiles the grammar of a
  // constrained answer, which may block for a while. Throws InvalidRequest, also if nothing is
  // loaded, like the getters below. A constrained request fits only the model that it was created
  // for: after a Reload it ends with an error. begins_turn and stop: see Engine::CreateRequest.
  virtual RequestPtr CreateRequest(std::string id, std::vector<Data> inputs,
                                   GenerationConfig generation_cfg, bool begins_turn = false,
                                   const std::stop_token& stop = {}) = 0;
  // Engine::CreateEmbeddingRequest, for the loaded model.
  virtual RequestPtr CreateEmbeddingRequest(std::string id, std::vector<Data> inputs,
                                            const EmbeddingConfig& embedding,
                                            const GenerationConfig& service = {}) = 0;
  // Throws InvalidRequest if the id is live or the engine has exited, QueueFull if too many
  // requests wait. Returns at once. An id is live until its final output is about to be handed to
  // the callback.
  virtual void AddRequest(RequestPtr request) = 0;
  // An id that is not live is ignored.
  virtual void AbortRequest(const std::string& request_id) = 0;
  // All that were added before, on any thread. Does not wait for their final outputs.
  virtual void AbortAllRequests() = 0;

  // Engine::LoadAdapter and the others, for the loaded model, on the caller's thread: requests are
  // served meanwhile. After a Reload there are those of its EngineConfig alone.
  virtual void LoadAdapter(const std::string& name, const std::string& folder) = 0;
  virtual void UnloadAdapter(const std::string& name) = 0;
  virtual std::vector<AdapterInfo> ListAdapters() const = 0;

  virtual GenerationConfig GetDefaultGenerationConfig() const = 0;
  virtual EngineConfig GetCompleteEngineConfig() const = 0;
  virtual RequestLimits GetRequestLimits() const = 0;
  virtual std::shared_ptr<const TokenTable> GetTokenTable() const = 0;

  // Runs `function` on the background loop's thread, with the loaded engine between two steps, and
  // returns what it returns. Blocks; rethrows. Throws InvalidRequest if no model is loaded. The
  // function must leave the engine loaded and may not keep a reference to it.
  template <typename Function>
  std::invoke_result_t<Function&, Engine&> Call(Function function) {
    return CallAs(InstructionKind::kCallEngine, std::move(function));
  }
  // Engine::JSONMetrics.
  std::string JSONMetrics() {
    return Call([](Engine& engine) { return engine.JSONMetrics(); });
  }
  // Engine::DebugCall: runs the debug function of that name and returns its answer.
  std::string DebugCallFuncOnAllAllWorker(const std::string& name) {
    return CallAs(InstructionKind::kDebugCallFuncOnAllAllWorker,
                  [&name](Engine& engine) { return engine.DebugCall(name); });
  }

 protected:
  // Runs `function` as Call does.
  virtual void CallOnEngine(InstructionKind kind, std::function<void(Engine&)> function) = 0;

 private:
  template <typename Function>
  std::invoke_result_t<Function&, Engine&> CallAs(InstructionKind kind, Function function) {
    using Result = std::invoke_result_t<Function&, Engine&>;
    if constexpr (std::is_void_v<Result>) {
      CallOnEngine(kind, std::ref(function));
    } else {
      std::optional<Result> result;
      CallOnEngine(kind, [&](Engine& engine) { result.emplace(function(engine)); });
      return std::move(*result);
    }
  }
};

}  // namespace mlc_native
