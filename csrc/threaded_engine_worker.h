// EngineWorker owns the engine, carries out instructions and steps; it never throws. What has to
// happen whatever the memory is, such as the end of a request, waits for memory.
//
// It keeps a list of the requests that were accepted and have no final output yet, so that each
// gets exactly one even if the engine itself fails: an engine that cannot be trusted any more is
// dropped, which leaves nothing loaded. Owned by the background loop; its thread only.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "engine_adapters.h"
#include "engine_grammars.h"
#include "mlc_native/config.h"
#include "mlc_native/data.h"
#include "mlc_native/detail/log.h"
#include "mlc_native/engine.h"
#include "mlc_native/threaded_engine.h"
#include "mlc_native/tokenizer.h"
#include "observe/event_trace.h"
#include "request/input_row_ids.h"
#include "request/queue_limit.h"
#include "request/request.h"
#include "support/completion.h"
#include "support/memory_reserve.h"

namespace mlc_native {

struct AddRequestArgument {
  RequestPtr request;
  Submission submission;
};
struct ReloadArgument {
  EngineConfig config;
  LoadProgress progress;
};
using EngineFunction = std::function<void(Engine&)>;

// An instruction to the background loop. Its argument is what its kind takes: kAddRequest an
// AddRequestArgument, kAbortRequest the request's id, kReloadEngine a ReloadArgument, kCallEngine
// and kDebugCallFuncOnAllAllWorker an EngineFunction; the others none.
struct Instruction {
  InstructionKind kind;
  std::variant<std::monostate, AddRequestArgument, std::string, ReloadArgument, EngineFunction>
      argument;
  std::optional<Completion> done;  // of one that the caller waits for
};

// What other threads may know of a loaded model. Immutable.
struct LoadedModel {
  EngineConfig config;
  GenerationConfig default_generation_config;
  RequestLimits limits;
  std::shared_ptr<const TokenTable> token_table;
  std::shared_ptr<EngineGrammars> grammars;
  std::shared_ptr<EngineAdapters> adapters;
  std::shared_ptr<InputRowIds> row_ids;
};

// Reports each distinct error once, up to a bound. Without memory, it reports what it can.
class OnceLog {
 public:
  // The log outlives it.
  explicit OnceLog(const Log* log) : log_(*log) {}
  // The message is these parts, one after another.
  void Write(std::initializer_list<std::string_view> parts) noexcept;

 private:
  static constexpr size_t kMaxMessages = 32;
  const Log& log_;
  std::set<std::string> written_;
};

struct EngineWorkerOptions {
  EngineFactory factory;
  std::string device;
  std::shared_ptr<EventTraceRecorder> trace_recorder;
  std::shared_ptr<QueueLimit> queue;
  // Takes the outputs, or throws std::bad_alloc and leaves them.
  std::function<void(std::vector<RequestStreamOutput>* outputs)> emit;
  MemoryReserve* reserve = nullptr;
  // Called with null before a model is unloaded.
  std::function<void(std::shared_ptr<const LoadedModel>)> publish;
  Log log;
};

class EngineWorker {
 public:
  explicit EngineWorker(EngineWorkerOptions options)
      : options_(std::move(options)), log_(&options_.log) {}

  // Nothing to do until the next instruction.
  bool idle() const { return engine_ == nullptr || engine_->Empty(); }
  void Execute(Instruction instruction);
  void Step();
  // Aborts all requests and drops the engine. From now on requests end with "abort" and other
  // instructions are refused.
  void Shutdown();

 private:
  void Run(Instruction& instruction);
  void AddRequest(AddRequestArgument& argument);
  void Reload(ReloadArgument& argument);
  void Reset();

  void Load(const EngineConfig& config, LoadProgress progress);
  void Unload();
  // Throws InvalidRequest when nothing is loaded.
  Engine& LoadedEngine();
  // Runs a function of the engine that should not throw, and recovers if it does.
  template <typename Action>
  void Guard(const char* what, const Action& action);
  // Ends all requests with an error; drops an engine that cannot even do that.
  void Recover(const char* what, const std::string& message) noexcept;
  // An idle engine owes no final output.
  void AuditAccepted();
  void OnOutputs(std::vector<RequestStreamOutput> outputs);
  // Ends accepted requests instead of the engine.
  void EndAll(FinishReason reason, const std::string& message);
  void End(const Request& request, FinishReason reason, const std::string& message);

  const EngineWorkerOptions options_;
  std::unique_ptr<Engine> engine_;
  std::unordered_map<std::string, RequestPtr> accepted_;  // by the engine, final output to come
  bool exited_ = false;
  OnceLog log_;
};

}  // namespace mlc_native
