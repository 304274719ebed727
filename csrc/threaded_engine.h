// ThreadedEngine: a thread-safe shell around Engine. One command channel in, one output channel
// out.
//
// The caller runs RunBackgroundLoop and RunBackgroundStreamBackLoop on two threads of its own, ends
// them with ExitBackgroundLoop and joins them. Any thread may call the other methods. No lock is
// held while calling the engine, the model or a callback. The engine object is touched only by the
// background loop.
//
// Failures: Reload, Unload, Reset, JSONMetrics and DebugCallFuncOnAllAllWorker block until done and
// rethrow what failed; they throw InvalidRequest when no background loop answers (not started after
// some seconds, exited, left behind by a fork). A configuration that is wrong by itself is refused
// before anything is unloaded; a load that fails afterwards leaves the engine unloaded. Requests to
// an unloaded engine end at once with finish reason "error". A callback that throws loses only its
// own call; the loop goes on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/data.h"
#include "engine.h"
#include "models/model.h"
#include "observe/event_trace.h"
#include "request/request.h"
#include "tokenizer/token_table.h"

namespace mlc_native {

// Makes the engine of a Reload; called on the background loop's thread.
using EngineFactory =
    std::function<std::unique_ptr<Engine>(const EngineConfig&, const EngineOptions&)>;

class ThreadedEngine {
 public:
  static std::unique_ptr<ThreadedEngine> Create(EngineFactory factory = Engine::Create);
  // Exits and waits until the loops have returned.
  virtual ~ThreadedEngine() = default;

  // Before everything else, once. `callback` runs on the stream-back thread with all outputs that
  // have queued up.
  virtual void InitThreadedEngine(std::string device, RequestStreamCallback callback,
                                  std::shared_ptr<EventTraceRecorder> trace_recorder) = 0;

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
  // constrained answer, which may block for a while. Throws InvalidRequest; also when nothing is
  // loaded, as the getters below do. A constrained request is for the model that it was created
  // for: after a Reload it ends with an error. begins_turn: the answer is a turn of a chat; see
  // Request.
  virtual RequestPtr CreateRequest(std::string id, std::vector<Data> inputs,
                                   GenerationConfig generation_cfg, bool begins_turn = false) = 0;
  // Throws InvalidRequest when the id is live or the engine has exited, QueueFull when too many
  // requests wait. Returns at once. An id is
  // live until its final output is about to be handed to the callback.
  virtual void AddRequest(RequestPtr request) = 0;
  // An id that is not live is ignored.
  virtual void AbortRequest(const std::string& request_id) = 0;
  // All that were added before, on any thread. Does not wait for their final outputs.
  virtual void AbortAllRequests() = 0;

  virtual GenerationConfig GetDefaultGenerationConfig() const = 0;
  virtual EngineConfig GetCompleteEngineConfig() const = 0;
  virtual RequestLimits GetRequestLimits() const = 0;
  virtual std::shared_ptr<const TokenTable> GetTokenTable() const = 0;
  // JSON of EngineMetrics::AsJSONString, taken on the engine's thread between two steps. Blocks.
  virtual std::string JSONMetrics() = 0;
  // Engine::PinPrefix, UnpinPrefix and PinnedPrefixes between two steps. Block.
  virtual int64_t PinPrefix(const std::vector<int32_t>& token_ids) = 0;
  virtual void UnpinPrefix(int64_t pin_id) = 0;
  virtual std::vector<PinnedPrefix> PinnedPrefixes() = 0;
  // Runs a named debug function on the engine's thread (Engine::DebugCall) and returns its answer.
  // Blocks.
  virtual std::string DebugCallFuncOnAllAllWorker(const std::string& name) = 0;
};

}  // namespace mlc_native
