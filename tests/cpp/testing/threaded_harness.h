// ThreadedHarness: a ThreadedEngine over the fake model with both loops on threads, every output
// checked by a HistoryChecker. Thread-safe. Waiting is for events, with a deadline only so that a
// hang is a failure.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "fake_model/fake_model.h"
#include "mlc_native/engine.h"
#include "mlc_native/threaded_engine.h"
#include "testing/history_checker.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {

inline constexpr std::chrono::seconds kHang{60};

// A place that threads wait at until it is opened; tells when one has arrived.
class Gate {
 public:
  void Pass();
  void AwaitArrival(int count = 1);
  void Open();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_arrived_ = 0;
  bool open_ = false;
};

// A model folder for the lifetime of the object.
class ModelFolder {
 public:
  explicit ModelFolder(const std::string& config_json = "{\"fake\": {}}");
  ~ModelFolder();
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  void Write(const std::string& name, const std::string& text) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// An answer without max_tokens has no end within a test, however late the test's thread gets to
// what it wants to do meanwhile.
TestEngineSetup EndlessSetup();

class ThreadedHarness {
 public:
  explicit ThreadedHarness(TestEngineSetup setup = EndlessSetup());
  // With a factory of the test's own.
  ThreadedHarness(TestEngineSetup setup, EngineFactory factory);
  ~ThreadedHarness();

  // Set before Start. Called in the callback after the checker has seen the outputs.
  std::function<void(const std::vector<RequestStreamOutput>&)> on_outputs;
  // Set before Reload. Called at the start of every forward.
  std::function<void(const ForwardBatch&)> on_forward;
  // Set before Start. Called with messages of the log, which otherwise go to stderr.
  std::function<void(LogLevel, std::string_view)> on_log;

  ThreadedHarness& Start();
  void Load();
  ThreadedHarness& StartAndLoad();
  std::string ReloadJson() const;

  void JoinBackground();
  void ExitAndJoin();

  void Add(const std::string& id, std::vector<int32_t> prompt, const GenerationConfig& config);
  // Without asking what is loaded.
  void AddUnchecked(const std::string& id, const GenerationConfig& config = Greedy(4));
  void AddRequest(RequestPtr request);

  // False when the engine refuses the request.
  bool TryAdd(const RequestPtr& request);

  // Waits for the final output.
  RequestHistory Await(const std::string& id);
  void AwaitAll();
  // Waits until sequence 0 of the request has at least that many tokens.
  void AwaitTokens(const std::string& id, size_t num_tokens);
  FinishReason AwaitReason(const std::string& id);

  // Serves one more request and finds every page free afterwards.
  void ExpectHealthy();
  void ExpectAllFinal();

  ThreadedEngine& engine() { return *engine_; }
  const FakeModelOptions& model() const { return setup_.model; }
  const ModelFolder& folder() const { return folder_; }
  int num_callbacks();

 private:
  EngineFactory FakeModelFactory();

  void Receive(std::vector<RequestStreamOutput> outputs);

  const TestEngineSetup setup_;
  const ModelFolder folder_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  HistoryChecker checker_;
  int num_callbacks_ = 0;

  int num_health_checks_ = 0;
  std::unique_ptr<ThreadedEngine> engine_;
  std::thread background_;
  std::thread stream_back_;
};

}  // namespace mlc_native::testing
