// ThreadedHarness: a ThreadedEngine over the fake model with both loops on threads, every output
// checked by a HistoryChecker. Thread-safe. Waiting is for events, with a deadline only so that a
// hang is a failure.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fake_model/fake_model.h"
#include "mlc_native/threaded_engine.h"
#include "support/check.h"
#include "support/error.h"
#include "testing/history_checker.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {

inline constexpr std::chrono::seconds kHang{60};

// A place that threads wait at until it is opened; tells when one has arrived.
class Gate {
 public:
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++num_arrived_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void AwaitArrival(int count = 1) {
    std::unique_lock<std::mutex> lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, kHang, [&] { return num_arrived_ >= count; }));
  }
  void Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_arrived_ = 0;
  bool open_ = false;
};

// A model folder for the lifetime of the object.
class ModelFolder {
 public:
  explicit ModelFolder(const std::string& config_json = "{\"fake\": {}}") {
    std::string pattern = (std::filesystem::path(::testing::TempDir()) / "model_XXXXXX").string();
    MLC_CHECK(mkdtemp(pattern.data()) != nullptr) << pattern;
    path_ = pattern;
    Write("config.json", config_json);
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(std::filesystem::path(path_) / name) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// An answer without max_tokens has no end within a test, however late the test's thread gets to
// what it wants to do meanwhile.
inline TestEngineSetup EndlessSetup() {
  TestEngineSetup setup{.num_pages = 1 << 16, .max_single_sequence_length = 1 << 20};
  setup.model.history_window = 8;
  return setup;
}

class ThreadedHarness {
 public:
  explicit ThreadedHarness(TestEngineSetup setup = EndlessSetup())
      : ThreadedHarness(std::move(setup), {}) {}

  // With a factory of the test's own.
  ThreadedHarness(TestEngineSetup setup, EngineFactory factory)
      : setup_(std::move(setup)),
        engine_(ThreadedEngine::Create(factory ? std::move(factory) : FakeModelFactory())) {
    engine_->InitThreadedEngine(
        "cpu", [this](std::vector<RequestStreamOutput> outputs) { Receive(std::move(outputs)); },
        setup_.trace);
  }

  ~ThreadedHarness() { ExitAndJoin(); }

  // Set before Start. Called in the callback after the checker has seen the outputs.
  std::function<void(const std::vector<RequestStreamOutput>&)> on_outputs;
  // Set before Reload. Called at the start of every forward.
  std::function<void(const ForwardBatch&)> on_forward;

  ThreadedHarness& Start() {
    background_ = std::thread([this] { engine_->RunBackgroundLoop(); });
    stream_back_ = std::thread([this] { engine_->RunBackgroundStreamBackLoop(); });
    return *this;
  }
  void Load() { engine_->Reload(ReloadJson()); }
  ThreadedHarness& StartAndLoad() {
    Start();
    Load();
    return *this;
  }
  std::string ReloadJson() const { return "{\"model\": \"" + folder_.path() + "\"}"; }

  void JoinBackground() {
    if (background_.joinable()) background_.join();
  }
  void ExitAndJoin() {
    engine_->ExitBackgroundLoop();
    JoinBackground();
    if (stream_back_.joinable()) stream_back_.join();
  }

  void Add(const std::string& id, std::vector<int32_t> prompt, const GenerationConfig& config) {
    AddRequest(engine_->CreateRequest(id, {TokenData{std::move(prompt)}}, config));
  }
  // Without asking what is loaded.
  void AddUnchecked(const std::string& id, const GenerationConfig& config = Greedy(4)) {
    const RequestLimits limits{.vocab_size = 256, .max_num_sequence = 8, .max_sequence_length = 64};
    AddRequest(CreateRequest(id, {TokenData{Prompt(5)}}, config, limits));
  }
  void AddRequest(RequestPtr request) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      checker_.Add(*request);
    }
    try {
      engine_->AddRequest(request);
    } catch (const InvalidRequest&) {
      std::lock_guard<std::mutex> lock(mutex_);
      checker_.Forget(request->id);
      throw;
    }
  }

  // False when the engine refuses the request.
  bool TryAdd(const RequestPtr& request) {
    try {
      AddRequest(request);
      return true;
    } catch (const InvalidRequest&) {
      return false;
    }
  }

  // Waits for the final output.
  RequestHistory Await(const std::string& id) {
    std::unique_lock<std::mutex> lock(mutex_);
    const bool done = changed_.wait_for(lock, kHang, [&] { return checker_.of(id).is_final(); });
    EXPECT_TRUE(done) << id << " has no final output";
    return checker_.of(id);
  }
  void AwaitAll() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, kHang, [this] {
      for (const auto& [id, history] : checker_.all()) {
        if (!history.is_final()) return false;
      }
      return true;
    });
    checker_.ExpectAllFinal();
  }
  // Waits until sequence 0 of the request has at least that many tokens.
  void AwaitTokens(const std::string& id, size_t num_tokens) {
    std::unique_lock<std::mutex> lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(
        lock, kHang, [&] { return checker_.of(id).sequences[0].token_ids.size() >= num_tokens; }));
  }
  FinishReason AwaitReason(const std::string& id) {
    return Await(id).sequences.at(0).finish_reason.value();
  }

  // Serves one more request and finds every page free afterwards.
  void ExpectHealthy() {
    const std::string id = "health " + std::to_string(num_health_checks_++);
    Add(id, Prompt(20, 3), Greedy(5));
    EXPECT_EQ(Await(id).only().token_ids, Oracle(setup_.model, Prompt(20, 3), 5));
    EXPECT_NE(engine_->DebugCallFuncOnAllAllWorker("audit_pages").find("\"kv_pages_used\":0"),
              std::string::npos);
  }
  void ExpectAllFinal() {
    std::lock_guard<std::mutex> lock(mutex_);
    checker_.ExpectAllFinal();
  }

  ThreadedEngine& engine() { return *engine_; }
  const FakeModelOptions& model() const { return setup_.model; }
  const ModelFolder& folder() const { return folder_; }
  int num_callbacks() {
    std::lock_guard<std::mutex> lock(mutex_);
    return num_callbacks_;
  }

 private:
  EngineFactory FakeModelFactory() {
    return [this](const EngineConfig& given, const EngineOptions& options) {
      auto model = std::make_unique<FakeModel>(setup_.model);
      model->set_on_forward([this](const ForwardBatch& batch) {
        if (on_forward) on_forward(batch);
      });
      ModelDefaults defaults;
      defaults.eos_token_ids = setup_.eos_token_ids;
      EngineOptions with_grammar = options;
      with_grammar.create_grammar_compiler = FakeGrammarFactory(setup_.grammar);
      return Engine::FromModel(std::move(model), setup_.Apply(given), defaults, setup_.token_table,
                               with_grammar);
    };
  }

  void Receive(std::vector<RequestStreamOutput> outputs) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++num_callbacks_;
      checker_.Receive(outputs);
      changed_.notify_all();
    }
    if (on_outputs) on_outputs(outputs);
  }

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
