#include "mlc_native/threaded_engine.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <optional>
#include <thread>
#include <unordered_set>
#include <utility>

#include "checkpoint/model_defaults.h"
#include "observe/callback_trace.h"
#include "support/channel.h"
#include "support/error.h"
#include "support/float_environment.h"
#include "support/library_thread.h"
#include "support/memory_reserve.h"
#include "support/mutex.h"
#include "threaded_engine_worker.h"

namespace mlc_native {
namespace {

// How long a blocking call waits for a background loop that has not started yet.
constexpr std::chrono::seconds kLoopStartTimeout{5};

[[noreturn]] void ThrowNoLoop(const std::string& why) { throw InvalidRequest("engine", why); }

// All that can be known to be wrong without loading.
EngineConfig CheckedConfig(const std::string& engine_config_json) {
  EngineConfig config = EngineConfig::FromJSONString(engine_config_json);
  if (config.model.empty()) {
    throw InvalidConfig("model", "\"model\" must name a model folder, got \"\"");
  }
  ReadModelDefaults(config.model);
  std::error_code error;
  if (!config.model_lib.empty() && !std::filesystem::is_regular_file(config.model_lib, error)) {
    throw LoadError("model_lib", "The library \"" + config.model_lib + "\" does not exist");
  }
  return config;
}

class ThreadedEngineImpl final : public ThreadedEngine {
 public:
  explicit ThreadedEngineImpl(EngineFactory factory) : factory_(std::move(factory)) {}

  ~ThreadedEngineImpl() override {
    if (getpid() != process_) {
      // The loops stayed in the process that forked this one: no thread will ever leave the
      // condition variables or can be joined, and destroying them would wait for that.
      static_cast<void>(sync_.release());
      return;
    }
    ExitBackgroundLoop();
    JoinThreads();
    const MutexLock lock(mutex_);
    while (num_loops_inside_ > 0) sync_->changed.Wait(mutex_);
  }

  void InitThreadedEngine(std::string device, RequestStreamCallback callback,
                          std::shared_ptr<EventTraceRecorder> trace_recorder, Log log) override {
    if (!callback) throw InvalidConfig("callback", "The request stream callback must not be empty");
    const MutexLock lock(mutex_);
    if (callback_) throw InvalidConfig("callback", "InitThreadedEngine was called already");
    device_ = std::move(device);
    callback_ = std::move(callback);
    trace_recorder_ = std::move(trace_recorder);
    log_ = std::move(log);
  }

  void Start() override {
    RefuseAfterFork();
    // Stop may wait for this loop, with threads_mutex.
    if (IsOnLoop())
      throw InvalidConfig("engine", "A loop cannot start the loops: they run already");
    const MutexLock lock(sync_->threads_mutex);
    StartLoop(&engine_loop_,
              [this] { return StartThread("mlcn-engine", [this] { BackgroundLoop(); }); });
    StartLoop(&stream_back_loop_,
              [this] { return StartThread("mlcn-outputs", [this] { StreamBackLoop(); }); });
  }

  void Stop() override {
    if (getpid() != process_) return;
    if (IsOnLoop()) {
      ThrowNoLoop("A loop cannot wait for its own end: call ExitBackgroundLoop in callbacks");
    }
    ExitBackgroundLoop();
    JoinThreads();
  }

  void RunBackgroundLoop() override {
    const DefaultFloatEnvironment floats;
    if (Enter(&engine_loop_)) BackgroundLoop();
  }

  void RunBackgroundStreamBackLoop() override {
    if (Enter(&stream_back_loop_)) StreamBackLoop();
  }

  void ExitBackgroundLoop() override {
    if (getpid() != process_) return;
    sync_->instructions.Close();
    {
      const MutexLock lock(mutex_);
      if (engine_loop_.state != LoopState::kNotStarted) return;
      engine_loop_.state = LoopState::kExited;
    }
    sync_->changed.NotifyAll();
    EndWithoutLoop();
  }

  void Reload(const std::string& engine_config_json, LoadProgress progress) override {
    Ask(InstructionKind::kReloadEngine,
        ReloadArgument{CheckedConfig(engine_config_json), std::move(progress)});
  }
  void Unload() override { Ask(InstructionKind::kUnloadEngine); }
  void Reset() override { Ask(InstructionKind::kResetEngine); }

  RequestPtr CreateRequest(std::string id, std::vector<Data> inputs,
                           GenerationConfig generation_cfg, bool begins_turn,
                           const std::stop_token& stop) override {
    const std::shared_ptr<const LoadedModel> loaded = Loaded();
    return mlc_native::CreateRequest(
        std::move(id), std::move(inputs), std::move(generation_cfg), loaded->limits,
        [&](Request* request) {
          loaded->adapters->ResolveFor(request);
          loaded->row_ids->ResolveFor(request);
          loaded->grammars->CompileFor(request, stop);
        },
        begins_turn);
  }

  RequestPtr CreateEmbeddingRequest(std::string id, std::vector<Data> inputs,
                                    const EmbeddingConfig& embedding,
                                    const GenerationConfig& service) override {
    const std::shared_ptr<const LoadedModel> loaded = Loaded();
    return mlc_native::CreateEmbeddingRequest(std::move(id), std::move(inputs), embedding, service,
                                              loaded->limits, [&](Request* request) {
                                                loaded->adapters->ResolveFor(request);
                                                loaded->row_ids->ResolveFor(request);
                                              });
  }

  void LoadAdapter(const std::string& name, const std::string& folder) override {
    Loaded()->adapters->Load(name, folder);
  }
  void UnloadAdapter(const std::string& name) override { Loaded()->adapters->Unload(name); }
  std::vector<AdapterInfo> ListAdapters() const override { return Loaded()->adapters->List(); }

  void AddRequest(RequestPtr request) override {
    RefuseAfterFork();
    if (request == nullptr) throw InvalidRequest("request", "The request must not be null");
    Submission submission{.time = Clock::now(), .slot = {}};
    if (request->needs_queue_slot()) submission.slot = QueueLimit::Enter(queue_);
    {
      const MutexLock lock(mutex_);
      if (!live_ids_.insert(request->id).second) {
        throw InvalidRequest("id", "Request id \"" + request->id +
                                       "\" is in use by a request that has not finished yet");
      }
    }
    try {
      if (Tell(InstructionKind::kAddRequest, AddRequestArgument{request, std::move(submission)})) {
        return;
      }
      ThrowNoLoop("The engine has exited");
    } catch (...) {
      const MutexLock lock(mutex_);
      live_ids_.erase(request->id);
      throw;
    }
  }

  // Both do nothing after the exit, which aborts all.
  void AbortRequest(const std::string& request_id) override {
    RefuseAfterFork();
    sync_->reserve.Run([&] { Tell(InstructionKind::kAbortRequest, request_id); });
  }

  void AbortAllRequests() override {
    RefuseAfterFork();
    sync_->reserve.Run([&] { Tell(InstructionKind::kAbortAllRequests); });
  }

  GenerationConfig GetDefaultGenerationConfig() const override {
    return Loaded()->default_generation_config;
  }
  EngineConfig GetCompleteEngineConfig() const override { return Loaded()->config; }
  RequestLimits GetRequestLimits() const override { return Loaded()->limits; }
  std::shared_ptr<const TokenTable> GetTokenTable() const override { return Loaded()->token_table; }

 private:
  enum class LoopState { kNotStarted, kRunning, kExited };
  struct Loop {
    LoopState state = LoopState::kNotStarted;
    std::thread::id thread;
  };

  // False if the loop has ended already. Otherwise the loop is to run now, once.
  bool Enter(Loop* loop) {
    {
      const MutexLock lock(mutex_);
      if (!callback_) throw InvalidConfig("callback", "Call InitThreadedEngine first");
      if (loop->state == LoopState::kExited) return false;
      if (loop->state == LoopState::kRunning) {
        throw InvalidConfig("engine", "This loop runs already on another thread");
      }
      loop->state = LoopState::kRunning;
      ++num_loops_inside_;
    }
    sync_->changed.NotifyAll();
    return true;
  }

  bool IsOnLoop() {
    const MutexLock lock(mutex_);
    const std::thread::id self = std::this_thread::get_id();
    return engine_loop_.thread == self || stream_back_loop_.thread == self;
  }

  void RunsOnThisThread(Loop* loop) {
    const MutexLock lock(mutex_);
    loop->thread = std::this_thread::get_id();
  }

  template <typename Start>
  void StartLoop(Loop* loop, const Start& start) MLC_REQUIRES(sync_->threads_mutex) {
    sync_->threads.reserve(sync_->threads.size() + 1);  // a thread that has started has a place
    if (!Enter(loop)) return;
    try {
      sync_->threads.push_back(start());
    } catch (...) {
      Leave(loop, LoopState::kNotStarted);  // it may be started again, by another thread
      throw;
    }
  }

  void BackgroundLoop() {
    RunsOnThisThread(&engine_loop_);
    const std::unique_ptr<EngineWorker> made = MakeWorker();
    EngineWorker& worker = *made;
    std::vector<Instruction> instructions;
    bool open = true;
    while (open) {
      sync_->reserve.Refill();
      open = worker.idle() ? sync_->instructions.WaitPopAll(&instructions)
                           : sync_->instructions.TryPopAll(&instructions);
      if (sync_->instructions.closed()) worker.Shutdown();
      for (Instruction& instruction : instructions) worker.Execute(std::move(instruction));
      worker.Step();
    }
    sync_->outputs.Close();
    Leave(&engine_loop_);
  }

  void StreamBackLoop() {
    RunsOnThisThread(&stream_back_loop_);
    OnceLog log(&log_);
    std::vector<std::vector<RequestStreamOutput>> batches;
    while (sync_->outputs.WaitPopAll(&batches)) Deliver(&batches, &log);
    Leave(&stream_back_loop_);
  }

  // The last act of a loop: the destructor may run from here on, so the notification is under the
  // lock.
  void Leave(Loop* loop, LoopState state = LoopState::kExited) {
    const MutexLock lock(mutex_);
    loop->state = state;
    loop->thread = {};
    --num_loops_inside_;
    sync_->changed.NotifyAll();
  }

  std::unique_ptr<EngineWorker> MakeWorker() {
    std::unique_ptr<EngineWorker> worker;
    sync_->reserve.Run([&] { worker = std::make_unique<EngineWorker>(WorkerOptions()); });
    return worker;
  }

  EngineWorkerOptions WorkerOptions() {
    EngineWorkerOptions options;
    options.factory = factory_;
    options.device = device_;
    options.trace_recorder = trace_recorder_;
    options.queue = queue_;
    options.log = log_;
    options.reserve = &sync_->reserve;
    options.emit = [this](std::vector<RequestStreamOutput>* outputs) {
      sync_->outputs.Push(std::move(*outputs));
    };
    options.publish = [this](std::shared_ptr<const LoadedModel> loaded) {
      const MutexLock lock(mutex_);
      loaded_.swap(loaded);
    };
    return options;
  }

  // The exit of an engine whose background loop never ran: answers what has been asked of it.
  void EndWithoutLoop() {
    const std::unique_ptr<EngineWorker> worker = MakeWorker();
    worker->Shutdown();
    std::vector<Instruction> instructions;
    while (sync_->instructions.TryPopAll(&instructions)) {
      for (Instruction& instruction : instructions) worker->Execute(std::move(instruction));
    }
    sync_->outputs.Close();
  }

  using Argument = decltype(Instruction::argument);

  void CallOnEngine(InstructionKind kind, EngineFunction function) override {
    Ask(kind, std::move(function));
  }

  // Sends an instruction to the background loop. False after the exit.
  bool Tell(InstructionKind kind, Argument argument = {}) {
    return sync_->instructions.Push(
        Instruction{.kind = kind, .argument = std::move(argument), .done = std::nullopt});
  }

  // Sends an instruction and waits until it is done. Rethrows what it threw.
  void Ask(InstructionKind kind, Argument argument = {}) {
    RequireBackgroundLoop();
    Instruction instruction{.kind = kind, .argument = std::move(argument), .done = Completion()};
    Completion::Waiter done = instruction.done->waiter();
    if (!sync_->instructions.Push(std::move(instruction))) ThrowNoLoop("The engine has exited");
    done.Wait();
  }

  void JoinThreads() {
    const MutexLock lock(sync_->threads_mutex);
    for (std::thread& thread : sync_->threads) thread.join();
    sync_->threads.clear();
  }

  void RequireBackgroundLoop() {
    RefuseAfterFork();
    const auto deadline = std::chrono::steady_clock::now() + kLoopStartTimeout;
    const MutexLock lock(mutex_);
    if (engine_loop_.thread == std::this_thread::get_id()) {
      ThrowNoLoop("The background loop cannot wait for itself: not from its callbacks");
    }
    while (engine_loop_.state == LoopState::kNotStarted) {
      if (sync_->changed.WaitUntil(mutex_, deadline)) continue;
      ThrowNoLoop("The background loop is not running: call Start first");
    }
  }

  void RefuseAfterFork() const {
    if (getpid() != process_) {
      ThrowNoLoop("This engine belongs to the process that forked this one; create a new engine");
    }
  }

  std::shared_ptr<const LoadedModel> Loaded() const {
    RefuseAfterFork();
    const MutexLock lock(mutex_);
    if (loaded_ == nullptr) throw InvalidRequest("engine", "No model is loaded");
    return loaded_;
  }

  // Hands everything that has queued up to the callback in one call.
  void Deliver(std::vector<std::vector<RequestStreamOutput>>* batches, OnceLog* log) {
    std::vector<RequestStreamOutput> outputs = std::move(batches->front());
    size_t num_outputs = outputs.size();
    for (size_t i = 1; i < batches->size(); ++i) num_outputs += (*batches)[i].size();
    sync_->reserve.Run([&] { outputs.reserve(num_outputs); });
    for (size_t i = 1; i < batches->size(); ++i) {
      std::ranges::move((*batches)[i], std::back_inserter(outputs));
    }
    RetireFinished(outputs);
    const CallbackTrace span(trace_recorder_.get(), "stream callback", outputs);
    try {
      callback_(std::move(outputs));
    } catch (const std::exception& e) {
      log->Write({"The request stream callback failed: ", e.what()});
    } catch (...) {
      log->Write({"The request stream callback failed"});
    }
  }

  void RetireFinished(const std::vector<RequestStreamOutput>& outputs) {
    const MutexLock lock(mutex_);
    for (const RequestStreamOutput& output : outputs) {
      if (output.is_final()) live_ids_.erase(output.request_id);
    }
  }

  const EngineFactory factory_;
  const pid_t process_ = getpid();
  // Constant after InitThreadedEngine.
  std::string device_;
  RequestStreamCallback callback_;
  std::shared_ptr<EventTraceRecorder> trace_recorder_;
  Log log_;

  struct Sync {
    Channel<Instruction> instructions;                  // closed by ExitBackgroundLoop
    Channel<std::vector<RequestStreamOutput>> outputs;  // closed by the end of the background loop
    CondVar changed;                                    // a loop entered or left; with mutex_
    MemoryReserve reserve;
    Mutex threads_mutex;                                             // locked before mutex_
    std::vector<std::thread> threads MLC_GUARDED_BY(threads_mutex);  // of Start
  };
  // Own synchronization.
  std::unique_ptr<Sync> sync_ = std::make_unique<Sync>();
  const std::shared_ptr<QueueLimit> queue_ = std::make_shared<QueueLimit>();

  mutable Mutex mutex_;
  Loop engine_loop_ MLC_GUARDED_BY(mutex_);
  Loop stream_back_loop_ MLC_GUARDED_BY(mutex_);
  int num_loops_inside_ MLC_GUARDED_BY(mutex_) = 0;
  std::unordered_set<std::string> live_ids_ MLC_GUARDED_BY(mutex_);
  std::shared_ptr<const LoadedModel> loaded_ MLC_GUARDED_BY(mutex_);  // null: nothing is loaded
};

}  // namespace

std::unique_ptr<ThreadedEngine> ThreadedEngine::Create(EngineFactory factory) {
  return std::make_unique<ThreadedEngineImpl>(std::move(factory));
}

}  // namespace mlc_native
