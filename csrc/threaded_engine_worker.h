// EngineWorker: what the background loop does between two looks at its channel. It owns the engine
// and answers commands; it never throws.
//
// It keeps the account of requests that were accepted and have no final output yet, so that each
// gets exactly one even when the engine itself fails: an engine that cannot be trusted any more is
// dropped, which leaves nothing loaded. Background loop's thread only.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "config/config.h"
#include "config/data.h"
#include "engine.h"
#include "request/request.h"
#include "threaded_engine.h"
#include "tokenizer/token_table.h"

namespace mlc_native {

// ---- the instruction kinds; those that have an answer carry a promise for it

struct AddRequestCommand {
  RequestPtr request;
  Submission submission;
};
struct AbortRequestCommand {
  std::string request_id;
};
struct AbortAllRequestsCommand {};
struct ReloadEngineCommand {
  EngineConfig config;
  LoadProgress progress;
  std::promise<void> reply;
};
struct UnloadEngineCommand {
  std::promise<void> reply;
};
struct ResetEngineCommand {
  std::promise<void> reply;
};
struct QueryMetricsCommand {
  std::promise<std::string> reply;
};
struct PinPrefixCommand {
  std::vector<int32_t> token_ids;
  std::promise<int64_t> reply;
};
struct UnpinPrefixCommand {
  int64_t pin_id = 0;
  std::promise<void> reply;
};
struct PinnedPrefixesCommand {
  std::promise<std::vector<PinnedPrefix>> reply;
};
struct DebugCallCommand {
  std::string name;
  std::promise<std::string> reply;
};
using Command =
    std::variant<AddRequestCommand, AbortRequestCommand, AbortAllRequestsCommand,
                 ReloadEngineCommand, UnloadEngineCommand, ResetEngineCommand, QueryMetricsCommand,
                 PinPrefixCommand, UnpinPrefixCommand, PinnedPrefixesCommand, DebugCallCommand>;

// What other threads may know of a loaded model. Immutable.
struct LoadedModel {
  EngineConfig config;
  GenerationConfig default_generation_config;
  RequestLimits limits;
  std::shared_ptr<const TokenTable> token_table;
  std::shared_ptr<EngineGrammars> grammars;
};

// One line on stderr for each distinct message, up to a bound.
class OnceLog {
 public:
  void Write(const std::string& message);

 private:
  static constexpr size_t kMaxMessages = 32;
  std::set<std::string> written_;
};

struct EngineWorkerOptions {
  EngineFactory factory;
  std::string device;
  std::shared_ptr<EventTraceRecorder> trace_recorder;
  std::shared_ptr<QueueLimit> queue;
  RequestStreamCallback emit;
  // Called with null before a model is unloaded.
  std::function<void(std::shared_ptr<const LoadedModel>)> publish;
};

class EngineWorker {
 public:
  explicit EngineWorker(EngineWorkerOptions options) : options_(std::move(options)) {}

  // Nothing to do until the next command.
  bool idle() const { return engine_ == nullptr || engine_->Empty(); }
  void Execute(Command command);
  void Step();
  // Aborts all requests and drops the engine; from now on requests end with "abort" and other
  // commands are refused.
  void Shutdown();

 private:
  void Run(AddRequestCommand& command);
  void Run(AbortRequestCommand& command);
  void Run(AbortAllRequestsCommand& command);
  void Run(ReloadEngineCommand& command);
  void Run(UnloadEngineCommand& command);
  void Run(ResetEngineCommand& command);
  void Run(QueryMetricsCommand& command);
  void Run(PinPrefixCommand& command);
  void Run(UnpinPrefixCommand& command);
  void Run(PinnedPrefixesCommand& command);
  void Run(DebugCallCommand& command);

  void Load(const EngineConfig& config, LoadProgress progress);
  void Unload();
  // Throws InvalidRequest when nothing is loaded.
  Engine& LoadedEngine();
  // Runs something of the engine that should not throw, and recovers if it does.
  template <typename Action>
  void Guard(const char* what, const Action& action);
  // Ends all requests with an error; drops an engine that cannot even do that.
  void Recover(const char* what, const std::string& message);
  // An idle engine owes no final output.
  void AuditAccepted();
  void OnOutputs(std::vector<RequestStreamOutput> outputs);
  // Ends accepted requests in the engine's stead.
  void EndAll(FinishReason reason, const std::string& message);
  void End(const Request& request, FinishReason reason, const std::string& message);

  const EngineWorkerOptions options_;
  std::unique_ptr<Engine> engine_;
  std::unordered_map<std::string, RequestPtr> accepted_;  // by the engine, final output to come
  bool exited_ = false;
  OnceLog log_;
};

}  // namespace mlc_native
