#include "testing/threaded_harness.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/check.h"
#include "support/error.h"

namespace mlc_native::testing {

void Gate::Pass() {
  std::unique_lock<std::mutex> lock(mutex_);
  ++num_arrived_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return open_; });
}

void Gate::AwaitArrival(int count) {
  std::unique_lock<std::mutex> lock(mutex_);
  ASSERT_TRUE(changed_.wait_for(lock, kHang, [&] { return num_arrived_ >= count; }));
}

void Gate::Open() {
  std::lock_guard<std::mutex> lock(mutex_);
  open_ = true;
  changed_.notify_all();
}

ModelFolder::ModelFolder(const std::string& config_json) {
  std::string pattern = (std::filesystem::path(::testing::TempDir()) / "model_XXXXXX").string();
  MLC_CHECK(mkdtemp(pattern.data()) != nullptr) << pattern;
  path_ = pattern;
  Write("config.json", config_json);
}

ModelFolder::~ModelFolder() { std::filesystem::remove_all(path_); }

void ModelFolder::Write(const std::string& name, const std::string& text) const {
  std::ofstream(std::filesystem::path(path_) / name) << text;
}

TestEngineSetup EndlessSetup() {
  TestEngineSetup setup{.num_pages = 1 << 16, .max_single_sequence_length = 1 << 20};
  setup.model.context_window_size = setup.max_single_sequence_length;
  setup.model.history_window = 8;
  return setup;
}

ThreadedHarness::ThreadedHarness(TestEngineSetup setup) : ThreadedHarness(std::move(setup), {}) {}

ThreadedHarness::ThreadedHarness(TestEngineSetup setup, EngineFactory factory)
    : setup_(std::move(setup)),
      engine_(ThreadedEngine::Create(factory ? std::move(factory) : FakeModelFactory())) {
  engine_->InitThreadedEngine(
      "cpu", [this](std::vector<RequestStreamOutput> outputs) { Receive(std::move(outputs)); },
      setup_.trace, {.function = [this](LogLevel level, std::string_view message) {
        on_log ? on_log(level, message) : Log().Write(level, message);
      }});
}

ThreadedHarness::~ThreadedHarness() { ExitAndJoin(); }

ThreadedHarness& ThreadedHarness::Start() {
  background_ = std::thread([this] { engine_->RunBackgroundLoop(); });
  stream_back_ = std::thread([this] { engine_->RunBackgroundStreamBackLoop(); });
  return *this;
}

void ThreadedHarness::Load() { engine_->Reload(ReloadJson()); }

ThreadedHarness& ThreadedHarness::StartAndLoad() {
  Start();
  Load();
  return *this;
}

std::string ThreadedHarness::ReloadJson() const {
  return "{\"model\": \"" + folder_.path() + "\"}";
}

void ThreadedHarness::JoinBackground() {
  if (background_.joinable()) background_.join();
}

void ThreadedHarness::ExitAndJoin() {
  engine_->ExitBackgroundLoop();
  JoinBackground();
  if (stream_back_.joinable()) stream_back_.join();
}

void ThreadedHarness::Add(const std::string& id, std::vector<int32_t> prompt,
                          const GenerationConfig& config) {
  AddRequest(engine_->CreateRequest(id, {TokenData{std::move(prompt)}}, config));
}

void ThreadedHarness::AddUnchecked(const std::string& id, const GenerationConfig& config) {
  const RequestLimits limits{.vocab_size = 256, .max_num_sequence = 8, .max_sequence_length = 64};
  AddRequest(CreateRequest(id, {TokenData{Prompt(5)}}, config, limits));
}

void ThreadedHarness::AddRequest(RequestPtr request) {
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

bool ThreadedHarness::TryAdd(const RequestPtr& request) {
  try {
    AddRequest(request);
    return true;
  } catch (const InvalidRequest&) {
    return false;
  }
}

RequestHistory ThreadedHarness::Await(const std::string& id) {
  std::unique_lock<std::mutex> lock(mutex_);
  const bool done = changed_.wait_for(lock, kHang, [&] { return checker_.of(id).is_final(); });
  EXPECT_TRUE(done) << id << " has no final output";
  return checker_.of(id);
}

void ThreadedHarness::AwaitAll() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, kHang, [this] {
    for (const auto& [id, history] : checker_.all()) {
      if (!history.is_final()) return false;
    }
    return true;
  });
  checker_.ExpectAllFinal();
}

void ThreadedHarness::AwaitTokens(const std::string& id, size_t num_tokens) {
  std::unique_lock<std::mutex> lock(mutex_);
  EXPECT_TRUE(changed_.wait_for(
      lock, kHang, [&] { return checker_.of(id).sequences[0].token_ids.size() >= num_tokens; }));
}

FinishReason ThreadedHarness::AwaitReason(const std::string& id) {
  return Await(id).sequences.at(0).finish_reason.value();
}

void ThreadedHarness::ExpectHealthy() {
  const std::string id = "health " + std::to_string(num_health_checks_++);
  Add(id, Prompt(20, 3), Greedy(5));
  EXPECT_EQ(Await(id).only().token_ids, Oracle(setup_.model, Prompt(20, 3), 5));
  EXPECT_NE(engine_->DebugCallFuncOnAllAllWorker("audit_pages").find("\"kv_pages_used\":0"),
            std::string::npos);
}

void ThreadedHarness::ExpectAllFinal() {
  std::lock_guard<std::mutex> lock(mutex_);
  checker_.ExpectAllFinal();
}

int ThreadedHarness::num_callbacks() {
  std::lock_guard<std::mutex> lock(mutex_);
  return num_callbacks_;
}

EngineFactory ThreadedHarness::FakeModelFactory() {
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

void ThreadedHarness::Receive(std::vector<RequestStreamOutput> outputs) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ++num_callbacks_;
    checker_.Receive(outputs);
    changed_.notify_all();
  }
  if (on_outputs) on_outputs(outputs);
}

}  // namespace mlc_native::testing
