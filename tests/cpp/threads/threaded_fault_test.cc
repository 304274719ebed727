// What goes wrong behind the threaded engine: models, engines, callbacks and configurations that
// fail. Whatever happens, each request gets exactly one final output and the next one is served.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <new>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "engine_adapters.h"
#include "engine_grammars.h"
#include "fake_model/path.h"
#include "mlc_native/threaded_engine.h"
#include "request/queue_limit.h"
#include "support/check.h"
#include "support/error.h"
#include "testing/threaded_harness.h"

namespace mlc_native {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using testing::Gate;
using testing::Greedy;
using ::testing::HasSubstr;
using testing::ModelFolder;
using testing::Oracle;
using testing::Prompt;
using testing::TestEngineSetup;
using testing::ThreadedHarness;

// ---- the model fails

// Two chunks of prefill, branches with copied pages, decode: every kind of forward.
void AddMixedRequests(ThreadedHarness* h) {
  h->Add("long", Prompt(100), Greedy(6));
  h->Add("branches", Prompt(20, 1), Greedy(6, 3));
  h->Add("short", Prompt(3, 2), Greedy(6));
}

class ModelFailsAt : public ::testing::TestWithParam<int> {};

// W1: the loop outlives whatever the model throws.
TEST_P(ModelFailsAt, EveryRequestEndsOnceAndTheNextIsServed) {
  TestEngineSetup setup;
  setup.model.fail_at_forward = {GetParam()};
  ThreadedHarness h(setup);
  h.StartAndLoad();
  AddMixedRequests(&h);
  h.AwaitAll();
  int num_errors = 0;
  for (const char* id : {"long", "branches", "short"}) {
    const auto history = h.Await(id);
    const bool failed = history.sequences[0].finish_reason == FinishReason::kError;
    num_errors += failed;
    EXPECT_EQ(failed, !history.error_message.empty());
    if (failed) EXPECT_THAT(history.error_message, HasSubstr("fake model"));
    if (!failed) EXPECT_EQ(history.sequences[0].token_ids.size(), 6u);
  }
  EXPECT_TRUE(num_errors >= 1 || setup.model.run_ahead);  // behind a step in flight it is repeated
  h.ExpectHealthy();
}

INSTANTIATE_TEST_SUITE_P(EveryForward, ModelFailsAt, ::testing::Range(1, 7));

TEST(ThreadedFault, ModelThatAlwaysFails) {
  TestEngineSetup setup;
  setup.model.fail_always = true;
  ThreadedHarness h(setup);
  h.StartAndLoad();
  for (int i = 0; i < 10; ++i) h.Add(std::to_string(i), Prompt(5, i), Greedy(3));
  h.AwaitAll();
  EXPECT_EQ(h.AwaitReason("9"), FinishReason::kError);
  EXPECT_EQ(json::parse(h.engine().JSONMetrics())["num_errors"], 10);
}

TEST(ThreadedFault, ForwardRunsOutOfMemory) {
  std::atomic<int> num_forwards = 0;
  TestEngineSetup setup = testing::EndlessSetup();
  setup.model.run_ahead = false;  // or it is repeated
  ThreadedHarness h(setup);
  h.on_forward = [&](const ForwardBatch&) {
    if (++num_forwards == 2) throw std::bad_alloc();
  };
  h.StartAndLoad();
  h.Add("a", Prompt(10), Greedy(6));
  EXPECT_EQ(h.AwaitReason("a"), FinishReason::kError);
  h.ExpectHealthy();
}

TEST(ThreadedFault, ForwardThrowsNoStdException) {
  std::atomic<int> num_forwards = 0;
  ThreadedHarness h;
  h.on_forward = [&](const ForwardBatch&) {
    if (++num_forwards == 1) throw 42;
  };
  h.StartAndLoad();
  h.Add("a", Prompt(10), Greedy(6));
  EXPECT_EQ(h.AwaitReason("a"), FinishReason::kError);
  h.ExpectHealthy();
}

TEST(ThreadedFault, APoisonedRequestEndsAlone) {
  TestEngineSetup setup;
  setup.model.poison_token = 250;
  setup.model.nan_token = 251;
  ThreadedHarness h(setup);
  h.StartAndLoad();
  h.Add("poisoned", {1, 250, 2}, Greedy(6));
  h.Add("nan", {1, 2, 251}, Greedy(6));
  h.Add("well", Prompt(10), Greedy(4));
  EXPECT_EQ(h.AwaitReason("poisoned"), FinishReason::kError);
  EXPECT_EQ(h.AwaitReason("nan"), FinishReason::kError);
  EXPECT_EQ(h.Await("well").only().token_ids, Oracle(h.model(), Prompt(10), 4));
}

TEST(ThreadedFault, CopyFails) {
  TestEngineSetup setup;
  setup.model.fail_copy_at = {1};
  ThreadedHarness h(setup);
  h.StartAndLoad();
  h.Add("branches", Prompt(20), Greedy(6, 3));
  EXPECT_EQ(h.AwaitReason("branches"), FinishReason::kError);
  h.ExpectHealthy();
}

// ---- the callback fails

// W1: and what the callback throws.
TEST(ThreadedFault, ACallbackThatThrowsLosesNothingElse) {
  std::atomic<int> num_calls = 0;
  ThreadedHarness h;
  h.on_outputs = [&](const auto&) {
    const int call = ++num_calls;
    if (call % 3 == 0) throw std::runtime_error("callback");
    if (call % 3 == 1) throw call;
  };
  h.StartAndLoad();
  for (int i = 0; i < 10; ++i) h.Add(std::to_string(i), Prompt(5, i), Greedy(5));
  h.AwaitAll();
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(h.Await(std::to_string(i)).only().token_ids, Oracle(h.model(), Prompt(5, i), 5));
  }
  h.ExpectHealthy();
}

// Each distinct message once; without a log function they would be lines on stderr.
TEST(ThreadedFault, TheLogSaysThatTheCallbackFailed) {
  std::vector<std::string> said;
  ThreadedHarness h;
  h.on_outputs = [&](const auto&) { throw std::runtime_error("callback"); };
  h.on_log = [&](LogLevel level, std::string_view message) {
    EXPECT_EQ(level, LogLevel::kError);
    said.emplace_back(message);
    throw std::runtime_error("log");  // is lost
  };
  h.StartAndLoad();
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) h.Add(std::to_string(i), Prompt(5, i), Greedy(3));
  h.AwaitAll();
  h.ExitAndJoin();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_THAT(said, ElementsAre("The request stream callback failed: callback"));
}

// ---- configurations that fail

class BadReload : public ::testing::TestWithParam<std::function<std::string(const std::string&)>> {
};

TEST_P(BadReload, TheOldModelKeepsServing) {
  ThreadedHarness h;
  h.StartAndLoad();
  h.Add("a", Prompt(10), Greedy(200));
  h.AwaitTokens("a", 1);
  EXPECT_THROW(h.engine().Reload(GetParam()(h.folder().path())), CallerError);
  EXPECT_EQ(h.Await("a").only().token_ids, Oracle(h.model(), Prompt(10), 200));
  h.ExpectHealthy();
}

INSTANTIATE_TEST_SUITE_P(
    All, BadReload,
    ::testing::Values(
        [](const std::string&) { return "not json"; }, [](const std::string&) { return "{}"; },
        [](const std::string& folder) {
          return json{{"model", folder}, {"max_num_sequence", 0}}.dump();
        },
        [](const std::string& folder) { return json{{"model", folder}, {"modell", 1}}.dump(); },
        [](const std::string& folder) { return json{{"model", folder + "/missing"}}.dump(); },
        [](const std::string& folder) {
          return json{{"model", folder}, {"model_lib", folder + "/missing.so"}}.dump();
        }));

TEST(ThreadedFault, ReloadOfADamagedFolderKeepsTheOldModel) {
  ThreadedHarness h;
  h.StartAndLoad();
  const ModelFolder damaged("{\"fake\": ");
  EXPECT_THROW(h.engine().Reload(json{{"model", damaged.path()}}.dump()), LoadError);
  h.ExpectHealthy();
}

// W2: the caller of a failing reload gets the error; the engine is unloaded and can be loaded.
TEST(ThreadedFault, ALoadThatFailsLateLeavesNothingLoaded) {
  const ModelFolder good;
  const ModelFolder bad(R"({"fake": {"no_such_option": 1}})");
  ThreadedHarness h({}, Engine::Create);
  h.Start();
  json config = {{"model", good.path()}, {"model_lib", kFakeModelPath}};
  h.engine().Reload(config.dump());
  h.Add("a", Prompt(10), Greedy(-1));
  h.AwaitTokens("a", 1);
  config["model"] = bad.path();
  EXPECT_THROW(h.engine().Reload(config.dump()), LoadError);
  EXPECT_EQ(h.AwaitReason("a"), FinishReason::kAbort);
  EXPECT_THROW(h.engine().GetRequestLimits(), InvalidRequest);
  h.AddUnchecked("b");
  EXPECT_EQ(h.AwaitReason("b"), FinishReason::kError);
  config["model"] = good.path();
  h.engine().Reload(config.dump());
  h.ExpectHealthy();
}

TEST(ThreadedFault, ALibraryThatIsNoPlugin) {
  const ModelFolder folder;
  folder.Write("lib.so", "no library");
  ThreadedHarness h({}, Engine::Create);
  h.Start();
  EXPECT_THROW(h.engine().Reload(
                   json{{"model", folder.path()}, {"model_lib", folder.path() + "/lib.so"}}.dump()),
               LoadError);
}

TEST(ThreadedFault, UnknownDeviceSaysWhatThereCanBe) {
  const ModelFolder folder;
  const auto engine = ThreadedEngine::Create();
  engine->InitThreadedEngine("gpu:7", [](auto) {}, nullptr);
  engine->Start();
  try {
    engine->Reload(json{{"model", folder.path()}, {"model_lib", kFakeModelPath}}.dump());
    ADD_FAILURE() << "loaded";
  } catch (const InvalidConfig& e) {
    EXPECT_EQ(e.field(), "device");
    EXPECT_THAT(e.what(), HasSubstr("\"cpu\""));
  }
}

TEST(ThreadedFault, AModelThatCannotBeAllocated) {
  ThreadedHarness h({}, [](const EngineConfig&, const EngineOptions&) -> std::unique_ptr<Engine> {
    throw std::bad_alloc();
  });
  h.Start();
  EXPECT_THROW(h.Load(), std::bad_alloc);
  h.AddUnchecked("a");
  EXPECT_EQ(h.AwaitReason("a"), FinishReason::kError);
}

// ---- the engine itself fails

// An engine of hooks: does nothing, or what a test tells it to. Busy from the first request on.
class StubEngine : public Engine {
 public:
  struct Hooks {
    std::function<void()> step;
    std::function<void()> add;
    std::function<void()> abort;
    std::function<void()> reset;
    std::function<void()> end_all;  // AbortAllRequests and FailAllRequests
    bool empty = false;
  };
  StubEngine(Hooks* hooks, EngineConfig config) : hooks_(hooks), config_(std::move(config)) {}

  void AddRequest(RequestPtr) override {
    Call(hooks_->add);
    busy_ = true;
  }
  void AddRequest(RequestPtr request, Submission) override { AddRequest(std::move(request)); }
  void AbortRequest(const std::string&) override { Call(hooks_->abort); }
  void AbortAllRequests() override { Call(hooks_->end_all); }
  void FailAllRequests(const std::string&) override { Call(hooks_->end_all); }
  void Step() override { Call(hooks_->step); }
  void Reset() override { Call(hooks_->reset); }
  bool Empty() const override { return hooks_->empty || !busy_; }
  const EngineConfig& config() const override { return config_; }
  const GenerationConfig& default_generation_config() const override { return generation_; }
  RequestLimits request_limits() const override {
    return {.vocab_size = 256, .max_num_sequence = 8, .max_sequence_length = 64};
  }
  std::shared_ptr<const TokenTable> token_table() const override { return nullptr; }
  std::shared_ptr<EngineGrammars> grammars() const override { return nullptr; }
  std::shared_ptr<EngineAdapters> adapters() const override { return nullptr; }
  std::shared_ptr<InputRowIds> row_ids() const override { return nullptr; }
  std::string JSONMetrics() const override { return "{}"; }
  void AuditPages() const override {}
  int64_t PinPrefix(const std::vector<int32_t>&) override { throw std::runtime_error("pin"); }
  void UnpinPrefix(int64_t) override { throw std::runtime_error("unpin"); }
  std::vector<PinnedPrefix> PinnedPrefixes() const override { throw std::runtime_error("pins"); }
  std::string DebugCall(const std::string&) override { throw std::runtime_error("debug"); }

 private:
  static void Call(const std::function<void()>& hook) {
    if (hook) hook();
  }
  Hooks* const hooks_;
  const EngineConfig config_;
  const GenerationConfig generation_;
  bool busy_ = false;
};

void Fail() { throw std::runtime_error("stub"); }

EngineFactory StubFactory(StubEngine::Hooks* hooks) {
  return [hooks](const EngineConfig& config, const EngineOptions&) {
    return std::make_unique<StubEngine>(hooks, config);
  };
}

TEST(BrokenEngine, ThatCannotFailItsRequestsIsDropped) {
  StubEngine::Hooks hooks;
  hooks.step = Fail;
  hooks.end_all = Fail;
  std::vector<std::string> said;
  ThreadedHarness h({}, StubFactory(&hooks));
  h.on_log = [&](LogLevel, std::string_view message) { said.emplace_back(message); };
  h.StartAndLoad();
  h.AddUnchecked("a");
  EXPECT_EQ(h.AwaitReason("a"), FinishReason::kError);
  EXPECT_THAT(said, ElementsAre(HasSubstr("A step failed: stub"), HasSubstr("is dropped: stub")));
  h.AddUnchecked("b");
  EXPECT_EQ(h.AwaitReason("b"), FinishReason::kError);
  EXPECT_THROW(h.engine().JSONMetrics(), InvalidRequest);
  h.Load();  // and the next one gets its chance
  EXPECT_EQ(h.engine().JSONMetrics(), "{}");
}

TEST(BrokenEngine, ThatLosesARequest) {
  StubEngine::Hooks hooks;
  hooks.empty = true;
  ThreadedHarness h({}, StubFactory(&hooks));
  h.StartAndLoad();
  h.AddUnchecked("a");
  EXPECT_THAT(h.Await("a").error_message, HasSubstr("lost"));
}

TEST(BrokenEngine, ThatThrowsWhenARequestIsAdded) {
  StubEngine::Hooks hooks;
  hooks.empty = true;
  hooks.add = Fail;
  ThreadedHarness h({}, StubFactory(&hooks));
  h.StartAndLoad();
  h.AddUnchecked("a");
  EXPECT_EQ(h.Await("a").error_message, "stub");
}

TEST(BrokenEngine, ThatThrowsOnAbortAndForgetsOnFail) {
  Gate step;
  StubEngine::Hooks hooks;
  hooks.step = [&] { step.Pass(); };
  hooks.abort = [&] {
    hooks.empty = true;
    Fail();
  };
  ThreadedHarness h({}, StubFactory(&hooks));
  h.StartAndLoad();
  h.AddUnchecked("a");
  step.AwaitArrival();
  h.engine().AbortRequest("a");
  step.Open();
  EXPECT_EQ(h.AwaitReason("a"), FinishReason::kError);
}

TEST(BrokenEngine, WhoseResetFails) {
  Gate step;
  StubEngine::Hooks hooks;
  hooks.step = [&] { step.Pass(); };
  hooks.reset = [&] {
    hooks.empty = true;
    Fail();
  };
  ThreadedHarness h({}, StubFactory(&hooks));
  h.StartAndLoad();
  h.AddUnchecked("a");
  step.AwaitArrival();
  auto reset = std::async(std::launch::async, [&h] { h.engine().Reset(); });
  step.Open();
  EXPECT_THROW(reset.get(), std::runtime_error);
  EXPECT_EQ(h.AwaitReason("a"), FinishReason::kError);
  EXPECT_THROW(h.engine().DebugCallFuncOnAllAllWorker("x"), std::runtime_error);
}

TEST(BrokenEngine, ThatCannotAbortAtUnloadOrExit) {
  Gate step;
  StubEngine::Hooks hooks;
  hooks.step = [&] { step.Pass(); };
  hooks.end_all = Fail;
  ThreadedHarness h({}, StubFactory(&hooks));
  h.StartAndLoad();
  h.AddUnchecked("a");
  step.AwaitArrival();
  auto unload = std::async(std::launch::async, [&h] { h.engine().Unload(); });
  step.Open();
  EXPECT_NO_THROW(unload.get());
  h.Await("a");
  h.Load();
  h.AddUnchecked("b");
  h.ExitAndJoin();
  h.Await("b");
}

}  // namespace
}  // namespace mlc_native
