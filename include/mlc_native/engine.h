// Engine: the single-threaded serving engine. Requests in, Step(), outputs through the callback.
//
// Every request that AddRequest accepts gets exactly one final output, its last. A step is a
// transaction; a failure ends the requests at fault with finish reason "error" and the others go
// on. Step throws only what the callback throws; the state is consistent then, and all outputs of
// the step have been handed to the callback. One thread at a time calls the methods, except
// CreateRequest and those of adapters; there are no globals.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "mlc_native/config.h"
#include "mlc_native/data.h"
#include "mlc_native/detail/export.h"
#include "mlc_native/detail/log.h"
#include "mlc_native/detail/page.h"
#include "mlc_native/grammar.h"
#include "mlc_native/model.h"

namespace mlc_native {

class Drafter;
class EngineAdapters;
class InputRowIds;
class EngineGrammars;
class EventTraceRecorder;
class QueueLimit;
class SlowCalls;
struct DraftSource;
struct Submission;

struct EngineOptions {
  RequestStreamCallback request_stream_callback;       // may be empty: outputs are discarded
  std::shared_ptr<EventTraceRecorder> trace_recorder;  // may be null
  std::string device = "cpu";
  LoadProgress load_progress;  // may be empty
  Log log;
  // The only source of time for deadlines and metrics; a simulation drives its own.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
  // Counts waiting requests; the engine sets its limit to EngineConfig::max_queue_length. Null: the
  // engine has its own.
  std::shared_ptr<QueueLimit> queue;
  GrammarCompilerFactory create_grammar_compiler = CreateGrammarCompiler;
  // Runs calls of grammars that take long. Null: the engine's own threads do.
  std::shared_ptr<SlowCalls> slow_calls;
  // Makes a drafter of each sequence that is asked before those of the settings; null for none.
  std::function<std::unique_ptr<Drafter>(const DraftSource&)> make_drafter;
  // Makes the draft model of an engine that FromModel makes. Empty: it has none.
  std::function<std::unique_ptr<Model>()> make_draft_model;
};

class MLC_NATIVE_API Engine {
 public:
  // Loads the model named in the config, infers what is not set, allocates the KV cache. Throws
  // InvalidConfig, LoadError.
  static std::unique_ptr<Engine> Create(const EngineConfig& config, const EngineOptions& options);
  // From parts that exist already (tests, native hosts with a model of their own). `config` must be
  // resolved.
  static std::unique_ptr<Engine> FromModel(std::unique_ptr<Model> model, const EngineConfig& config,
                                           ModelDefaults defaults,
                                           std::shared_ptr<const TokenTable> token_table,
                                           const EngineOptions& options);
  virtual ~Engine() = default;

  // Loads an adapter, a folder of PEFT, for requests that name it (GenerationConfig::adapter).
  // Throws InvalidRequest for a name that is empty or in use, LoadError, and InvalidConfig if the
  // model takes none. Any thread.
  void LoadAdapter(const std::string& name, const std::string& folder) const;
  // Requests that run with it keep it. Throws InvalidRequest for a name that is not loaded. Any
  // thread.
  void UnloadAdapter(const std::string& name) const;
  std::vector<AdapterInfo> ListAdapters() const;  // by name; any thread

  // A validated request for this engine, with its grammar compiled, which may block for a while.
  // begins_turn: the answer is a turn of a chat; see Request. If `stop` is requested while the
  // grammar compiles, the request is returned at once; AddRequest ends it with "abort". Throws
  // InvalidRequest, and InvalidConfig when the grammar library is not there. Any thread.
  RequestPtr CreateRequest(std::string id, std::vector<Data> inputs,
                           GenerationConfig generation_cfg, bool begins_turn = false,
                           const std::stop_token& stop = {}) const;
  // A validated request for the embedding of its inputs, or for the logits of their classes. They
  // are served as a prompt; the answer is empty and ends with "stop". Of `service`, what it reads
  // is truncate_prompt_tokens and the fields of VisitServiceFields. Throws InvalidRequest. Any
  // thread.
  RequestPtr CreateEmbeddingRequest(std::string id, std::vector<Data> inputs,
                                    const EmbeddingConfig& embedding,
                                    const GenerationConfig& service = {}) const;
  // Throws InvalidRequest (also for an id that is live) and QueueFull; the request is then not
  // known to the engine.
  virtual void AddRequest(RequestPtr request) = 0;
  // A request that was accepted on another thread; it has its place in the queue already.
  virtual void AddRequest(RequestPtr request, Submission submission) = 0;
  // An id that is not live is ignored. The final output follows at once.
  virtual void AbortRequest(const std::string& request_id) = 0;
  virtual void AbortAllRequests() = 0;
  // Ends every request with finish reason "error".
  virtual void FailAllRequests(const std::string& message) = 0;
  // Computes one step and delivers its outputs. A model with a StepQueue computes a step while the
  // outputs of the step before it are delivered. Does nothing if Empty().
  virtual void Step() = 0;
  // Aborts all, then clears metrics and the prefix cache.
  virtual void Reset() = 0;
  virtual bool Empty() const = 0;

  virtual const EngineConfig& config() const = 0;  // completed
  virtual const GenerationConfig& default_generation_config() const = 0;
  virtual RequestLimits request_limits() const = 0;
  virtual std::shared_ptr<const TokenTable> token_table() const = 0;
  virtual std::shared_ptr<EngineGrammars> grammars() const = 0;  // never null
  virtual std::shared_ptr<EngineAdapters> adapters() const = 0;  // never null
  virtual std::shared_ptr<InputRowIds> row_ids() const = 0;      // never null
  virtual std::string JSONMetrics() const = 0;
  // Keeps a prompt in the prefix cache until it is unpinned or the engine is reset. All its tokens
  // must be in the cache: serve it before (debug_config.pinned_system_prompt pins while serving).
  // Returns the pin's id, which is the same for the same tokens. Throws InvalidRequest: not in the
  // cache, or the pins would leave no room for the longest sequence.
  virtual int64_t PinPrefix(const std::vector<int32_t>& token_ids) = 0;
  // Throws InvalidRequest for an id that is not pinned.
  virtual void UnpinPrefix(int64_t pin_id) = 0;
  virtual std::vector<PinnedPrefix> PinnedPrefixes() const = 0;
  // Every page is free or held by a live sequence or the cache. Throws InternalError. At idle: no
  // page is used.
  virtual void AuditPages() const = 0;
  // Calls one of the debug functions that engine_debug.cc registers ("dump_state", "audit_pages"
  // and so on) and returns its JSON answer. Throws InvalidRequest for a name that does not exist;
  // the message lists those that do.
  virtual std::string DebugCall(const std::string& name) = 0;
};

// Makes the engine of a Reload; called on the background loop's thread.
using EngineFactory =
    std::function<std::unique_ptr<Engine>(const EngineConfig&, const EngineOptions&)>;

}  // namespace mlc_native
