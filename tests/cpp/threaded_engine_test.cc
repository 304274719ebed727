#include "mlc_native/threaded_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "fake_model/path.h"
#include "observe/event_trace.h"
#include "support/check.h"
#include "support/error.h"
#include "testing/threaded_harness.h"
#include "testing/threads.h"

namespace mlc_native {
namespace {

using nlohmann::json;
using testing::Gate;
using testing::Greedy;
using ::testing::HasSubstr;
using testing::ModelFolder;
using testing::Oracle;
using testing::Prompt;
using testing::TestEngineSetup;
using testing::ThreadedHarness;

// The message of the InvalidRequest that `action` must throw.
template <typename Action>
std::string Refusal(const Action& action) {
  try {
    action();
  } catch (const InvalidRequest& e) {
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

// ---- serving

TEST(ThreadedEngine, StreamsARequest) {
  ThreadedHarness h;
  h.StartAndLoad();
  h.Add("a", Prompt(10), Greedy(20));
  const auto history = h.Await("a");
  EXPECT_EQ(history.only().token_ids, Oracle(h.model(), Prompt(10), 20));
  EXPECT_EQ(history.only().finish_reason, FinishReason::kLength);
  EXPECT_EQ(json::parse(*history.usage)["completion_tokens"], 20);
  h.ExpectHealthy();
}

TEST(ThreadedEngine, EightThreadsWithFiftyRequestsEach) {
  ThreadedHarness h;
  h.StartAndLoad();
  testing::Threads threads(8, [&h](int t) {
    for (int i = 0; i < 50; ++i) {
      h.Add(std::to_string(t) + '.' + std::to_string(i), Prompt(1 + i, t), Greedy(1 + i % 9));
    }
  });
  threads.Join();
  h.AwaitAll();
  for (int t = 0; t < 8; ++t) {
    for (int i = 0; i < 50; ++i) {
      EXPECT_EQ(h.Await(std::to_string(t) + '.' + std::to_string(i)).only().token_ids,
                Oracle(h.model(), Prompt(1 + i, t), 1 + i % 9));
    }
  }
  h.ExpectHealthy();
}

TEST(ThreadedEngine, DrainsAllCommandsBeforeAStep) {
  Gate first_forward;
  std::atomic<int> num_forwards = 0;
  std::atomic<size_t> second_batch = 0;
  ThreadedHarness h;
  h.on_forward = [&](const ForwardBatch& batch) {
    if (++num_forwards == 1) first_forward.Pass();
    if (num_forwards == 2) second_batch = batch.sequences.size();
  };
  h.StartAndLoad();
  h.Add("0", Prompt(4), Greedy(3));
  first_forward.AwaitArrival();
  for (int i = 1; i <= 5; ++i) h.Add(std::to_string(i), Prompt(4, i), Greedy(3));
  first_forward.Open();
  h.AwaitAll();
  EXPECT_EQ(second_batch, 6u);
}

TEST(ThreadedEngine, OneCallbackForAllThatQueuedUp) {
  constexpr int kTokens = 10;
  Gate in_callback;
  Gate last_forward;
  std::atomic<int> num_forwards = 0;
  ThreadedHarness h;
  h.on_outputs = [&](const auto&) {
    if (h.num_callbacks() == 1) in_callback.Pass();
  };
  h.on_forward = [&](const ForwardBatch&) {
    if (++num_forwards == kTokens) last_forward.Pass();
  };
  h.StartAndLoad();
  h.Add("a", Prompt(4), Greedy(kTokens));
  in_callback.AwaitArrival();  // with the first token
  last_forward.AwaitArrival();
  last_forward.Open();
  // Answered between two steps: the last one is submitted before the first answer and collected,
  // where steps run ahead, before the second.
  for (int i = 0; i < 2; ++i) h.engine().JSONMetrics();
  in_callback.Open();
  EXPECT_EQ(h.Await("a").only().token_ids.size(), size_t{kTokens});
  EXPECT_EQ(h.num_callbacks(), 2);
}

// W8
TEST(ThreadedEngine, DuplicateIdIsRefusedAndTheFirstIsUntouched) {
  Gate forward;
  ThreadedHarness h;
  h.on_forward = [&](const ForwardBatch&) { forward.Pass(); };
  h.StartAndLoad();
  h.Add("a", Prompt(4), Greedy(6));
  forward.AwaitArrival();
  const RequestPtr again = h.engine().CreateRequest("a", {TokenData{Prompt(9)}}, Greedy(2));
  EXPECT_THAT(Refusal([&] { h.engine().AddRequest(again); }), HasSubstr("\"a\" is in use"));
  forward.Open();
  EXPECT_EQ(h.Await("a").only().token_ids, Oracle(h.model(), Prompt(4), 6));
}

// Without the harness, whose checker knows one life of an id.
TEST(ThreadedEngine, AnIdIsFreeWhenItsFinalOutputIsDelivered) {
  const ModelFolder folder;
  const json config = {{"model", folder.path()}, {"model_lib", kFakeModelPath}};
  const auto engine = ThreadedEngine::Create();
  const auto add = [&engine] {
    engine->AddRequest(engine->CreateRequest("a", {TokenData{Prompt(3)}}, Greedy(2)));
  };
  int num_finals = 0;
  std::promise<void> second_final;
  engine->InitThreadedEngine(
      "cpu",
      [&](const std::vector<RequestStreamOutput>& outputs) {
        for (const RequestStreamOutput& output : outputs) {
          if (!output.is_final()) continue;
          if (++num_finals == 1) add();
          if (num_finals == 2) second_final.set_value();
        }
      },
      nullptr);
  engine->Start();
  engine->Reload(config.dump());
  add();
  EXPECT_EQ(second_final.get_future().wait_for(testing::kHang), std::future_status::ready);
  engine->Stop();
}

// W10
TEST(ThreadedEngine, TwoEnginesInOneProcess) {
  ThreadedHarness first;
  ThreadedHarness second;
  first.StartAndLoad();
  second.StartAndLoad();
  first.Add("same id", Prompt(10, 1), Greedy(8));
  second.Add("same id", Prompt(10, 2), Greedy(8));
  EXPECT_EQ(first.Await("same id").only().token_ids, Oracle(first.model(), Prompt(10, 1), 8));
  EXPECT_EQ(second.Await("same id").only().token_ids, Oracle(second.model(), Prompt(10, 2), 8));
}

TEST(ThreadedEngine, TracesTheCallback) {
  TestEngineSetup setup;
  setup.trace = std::make_shared<EventTraceRecorder>();
  ThreadedHarness h(setup);
  h.StartAndLoad();
  h.Add("a", Prompt(10), Greedy(5));
  h.Await("a");
  h.ExitAndJoin();
  std::map<std::string, int> balance;
  for (const json& event : json::parse(setup.trace->DumpJSON())) {
    balance[event["name"]] += event["ph"] == "B" ? 1 : event["ph"] == "E" ? -1 : 0;
  }
  EXPECT_EQ(balance.count("stream callback (0)"), 1u);
  EXPECT_EQ(balance.count("prefill (0)"), 1u);
  EXPECT_EQ(balance.count("decode (3)"), 1u);
  for (const auto& [name, open] : balance) EXPECT_EQ(open, 0) << name;
}

// ---- abort

TEST(ThreadedEngine, AbortWhileDecoding) {
  ThreadedHarness h;
  h.StartAndLoad();
  h.Add("a", Prompt(10), Greedy(-1));
  h.AwaitTokens("a", 3);
  h.engine().AbortRequest("a");
  EXPECT_EQ(h.AwaitReason("a"), FinishReason::kAbort);
  h.ExpectHealthy();
}

TEST(ThreadedEngine, AbortDuringPrefillAndWhileWaiting) {
  Gate forward;
  TestEngineSetup setup;
  setup.max_num_sequence = 1;
  ThreadedHarness h(setup);
  h.on_forward = [&](const ForwardBatch&) { forward.Pass(); };
  h.StartAndLoad();
  h.Add("prefill", Prompt(200), Greedy(5));  // four chunks
  forward.AwaitArrival();
  h.Add("waiting", Prompt(10), Greedy(5));
  h.engine().AbortRequest("waiting");
  h.engine().AbortRequest("prefill");
  h.engine().AbortRequest("unknown");
  forward.Open();
  EXPECT_EQ(h.AwaitReason("prefill"), FinishReason::kAbort);
  EXPECT_EQ(h.AwaitReason("waiting"), FinishReason::kAbort);
  EXPECT_TRUE(h.Await("prefill").only().token_ids.empty());
  h.ExpectHealthy();
}

TEST(ThreadedEngine, AbortAfterTheEndIsIgnored) {
  ThreadedHarness h;
  h.StartAndLoad();
  h.Add("a", Prompt(10), Greedy(2));
  EXPECT_EQ(h.AwaitReason("a"), FinishReason::kLength);
  h.engine().AbortRequest("a");
  h.ExpectHealthy();
}

TEST(ThreadedEngine, AbortsFromManyThreadsEndEachRequestOnce) {
  ThreadedHarness h;
  h.StartAndLoad();
  testing::Threads threads(4, [&h](int t) {
    for (int i = 0; i < 60; ++i) {
      const std::string id = std::to_string(t) + '.' + std::to_string(i);
      h.Add(id, Prompt(1 + i % 40, t), Greedy(1 + i % 30, 1 + i % 3));
      // The phase that an abort meets is up to the scheduler of the machine.
      if (i % 2 == 0) h.engine().AbortRequest(id);
      if (i >= 5 && i % 3 == 0) {
        h.engine().AbortRequest(std::to_string((t + 1) % 4) + '.' + std::to_string(i - 5));
      }
    }
  });
  threads.Join();
  h.AwaitAll();
  h.ExpectHealthy();
}

// ---- reload, unload, reset

TEST(ThreadedEngine, LoadsAPluginFromAFolder) {
  const ModelFolder folder(R"({"eos_token_id": 7, "fake": {"vocab_size": 99}})");
  ThreadedHarness h({}, Engine::Create);
  h.Start();
  const json config = {{"model", folder.path()},
                       {"model_lib", kFakeModelPath},
                       {"max_num_sequence", 3},
                       {"max_total_sequence_length", 500}};
  h.engine().Reload(config.dump());
  EXPECT_EQ(h.engine().GetRequestLimits().vocab_size, 99);
  EXPECT_EQ(h.engine().GetRequestLimits().max_num_sequence, 3);
  EXPECT_EQ(h.engine().GetCompleteEngineConfig().max_total_sequence_length, 512);
  EXPECT_EQ(h.engine().GetDefaultGenerationConfig().AsJSONString(),
            GenerationConfig().AsJSONString());
  EXPECT_EQ(h.engine().GetTokenTable(), nullptr);
  h.Add("a", {1, 2, 3}, Greedy(4));
  EXPECT_EQ(h.Await("a").only().token_ids.size(), 4u);
}

// W4: a request without a model is refused or ends with an error; the loop goes on.
TEST(ThreadedEngine, NothingIsLoadedBeforeReloadAndAfterUnload) {
  ThreadedHarness h;
  h.Start();
  const auto expect_unloaded = [&h](const std::string& id) {
    for (const std::string& message :
         {Refusal([&h] { h.engine().CreateRequest("x", {TokenData{{1}}}, {}); }),
          Refusal([&h] { h.engine().GetRequestLimits(); }),
          Refusal([&h] { h.engine().GetCompleteEngineConfig(); }),
          Refusal([&h] { h.engine().GetDefaultGenerationConfig(); }),
          Refusal([&h] { h.engine().GetTokenTable(); }),
          Refusal([&h] { h.engine().JSONMetrics(); }),
          Refusal([&h] { h.engine().DebugCallFuncOnAllAllWorker("audit_pages"); })}) {
      EXPECT_THAT(message, HasSubstr("No model is loaded"));
    }
    h.AddUnchecked(id, Greedy(4, 3));
    const auto history = h.Await(id);
    EXPECT_THAT(history.error_message, HasSubstr("No model is loaded"));
    for (const auto& sequence : history.sequences) {
      EXPECT_EQ(sequence.finish_reason, FinishReason::kError);
    }
  };
  expect_unloaded("before");
  EXPECT_NO_THROW(h.engine().Unload());
  EXPECT_NO_THROW(h.engine().Reset());
  h.Load();
  h.ExpectHealthy();
  h.engine().Unload();
  expect_unloaded("after");
  h.Load();
  h.ExpectHealthy();
}

TEST(ThreadedEngine, UnloadAndReloadAbortWhatRuns) {
  ThreadedHarness h;
  h.StartAndLoad();
  h.Add("a", Prompt(10), Greedy(-1));
  h.AwaitTokens("a", 1);
  h.Load();
  EXPECT_EQ(h.AwaitReason("a"), FinishReason::kAbort);
  h.Add("b", Prompt(10), Greedy(-1));
  h.AwaitTokens("b", 1);
  h.engine().Unload();
  EXPECT_EQ(h.AwaitReason("b"), FinishReason::kAbort);
}

TEST(ThreadedEngine, ARequestOfAnOldModelIsCheckedAgainstTheNew) {
  const ModelFolder wide(R"({"fake": {"vocab_size": 256}})");
  const ModelFolder narrow(R"({"fake": {"vocab_size": 16}})");
  ThreadedHarness h({}, Engine::Create);
  h.Start();
  json config = {{"model", wide.path()}, {"model_lib", kFakeModelPath}};
  h.engine().Reload(config.dump());
  const RequestPtr request = h.engine().CreateRequest("a", {TokenData{{200}}}, Greedy(4));
  config["model"] = narrow.path();
  h.engine().Reload(config.dump());
  h.AddRequest(request);
  EXPECT_THAT(h.Await("a").error_message, HasSubstr("[0, 16), got 200"));
}

TEST(ThreadedEngine, ResetAbortsAndClearsMetrics) {
  ThreadedHarness h;
  h.StartAndLoad();
  h.ExpectHealthy();
  EXPECT_GT(json::parse(h.engine().JSONMetrics())["completion_tokens_sum"], 0);
  h.Add("a", Prompt(10), Greedy(-1));
  h.AwaitTokens("a", 1);
  h.engine().Reset();
  EXPECT_EQ(h.AwaitReason("a"), FinishReason::kAbort);
  EXPECT_EQ(json::parse(h.engine().JSONMetrics())["completion_tokens_sum"], 0);
  h.ExpectHealthy();
}

// W2: each caller has a reply of its own.
TEST(ThreadedEngine, ReloadsFromSeveralThreadsAllReturn) {
  ThreadedHarness h;
  h.Start();
  testing::Threads threads(4, [&h](int) { h.Load(); });
  threads.Join();
  h.ExpectHealthy();
}

TEST(ThreadedEngine, DebugCall) {
  ThreadedHarness h;
  h.StartAndLoad();
  EXPECT_TRUE(json::parse(h.engine().DebugCallFuncOnAllAllWorker("dump_state")).is_object());
  EXPECT_THAT(Refusal([&] { h.engine().DebugCallFuncOnAllAllWorker("nonsense"); }),
              HasSubstr("nonsense"));
  h.ExpectHealthy();
}

// ---- the life of the loops

// W3
TEST(ThreadedEngine, ExitEndsEveryRequest) {
  Gate forward;
  ThreadedHarness h;
  h.on_forward = [&](const ForwardBatch&) { forward.Pass(); };
  h.StartAndLoad();
  h.Add("running", Prompt(10), Greedy(-1));
  forward.AwaitArrival();
  for (int i = 0; i < 20; ++i) h.Add("pending " + std::to_string(i), Prompt(10, i), Greedy(-1));
  h.engine().ExitBackgroundLoop();
  forward.Open();
  h.ExitAndJoin();  // the second exit
  h.ExpectAllFinal();
  EXPECT_EQ(h.AwaitReason("running"), FinishReason::kAbort);
  EXPECT_EQ(h.AwaitReason("pending 19"), FinishReason::kAbort);
}

TEST(ThreadedEngine, AfterTheExitEverythingIsRefused) {
  ThreadedHarness h;
  h.StartAndLoad();
  const RequestPtr request = h.engine().CreateRequest("a", {TokenData{{1}}}, Greedy(4));
  h.ExitAndJoin();
  EXPECT_THAT(Refusal([&] { h.engine().AddRequest(request); }), HasSubstr("exited"));
  EXPECT_THAT(Refusal([&] { h.engine().AddRequest(request); }), HasSubstr("exited"));
  EXPECT_THAT(Refusal([&] { h.Load(); }), HasSubstr("exited"));
  EXPECT_THAT(Refusal([&] { h.engine().Unload(); }), HasSubstr("exited"));
  EXPECT_THAT(Refusal([&] { h.engine().Reset(); }), HasSubstr("exited"));
  EXPECT_THAT(Refusal([&] { h.engine().JSONMetrics(); }), HasSubstr("exited"));
  EXPECT_NO_THROW(h.engine().AbortRequest("a"));
  EXPECT_THAT(Refusal([&] { h.engine().GetRequestLimits(); }), HasSubstr("No model is loaded"));
}

TEST(ThreadedEngine, ExitBeforeTheLoopsHaveStarted) {
  ThreadedHarness h;
  h.AddUnchecked("a");
  h.engine().ExitBackgroundLoop();
  h.Start();
  h.ExitAndJoin();
  EXPECT_EQ(h.AwaitReason("a"), FinishReason::kAbort);
}

TEST(ThreadedEngine, ExitEndsAStreamBackLoopThatRunsAlone) {
  ThreadedHarness h;
  std::thread stream_back([&h] { h.engine().RunBackgroundStreamBackLoop(); });
  h.AddUnchecked("a");
  h.engine().ExitBackgroundLoop();
  stream_back.join();
  EXPECT_EQ(h.AwaitReason("a"), FinishReason::kAbort);
}

TEST(ThreadedEngine, RequestsBeforeTheLoopsStartAreServedAfterwards) {
  ThreadedHarness h;
  h.AddUnchecked("a");
  h.Start();
  EXPECT_THAT(h.Await("a").error_message, HasSubstr("No model is loaded"));
}

TEST(ThreadedEngine, ExitDuringReload) {
  Gate loading;
  ThreadedHarness h({}, [&](const EngineConfig&, const EngineOptions&) -> std::unique_ptr<Engine> {
    loading.Pass();
    throw LoadError("model", "not today");
  });
  h.Start();
  auto reload = std::async(std::launch::async, [&h] { h.Load(); });
  loading.AwaitArrival();
  auto second = std::async(std::launch::async, [&h] { h.engine().JSONMetrics(); });
  h.engine().ExitBackgroundLoop();
  loading.Open();
  EXPECT_THROW(reload.get(), LoadError);
  EXPECT_THROW(second.get(), InvalidRequest);
  h.ExitAndJoin();
}

TEST(ThreadedEngine, ExitFromTheCallback) {
  Gate forward;
  ThreadedHarness h;
  h.on_forward = [&](const ForwardBatch&) { forward.Pass(); };
  h.on_outputs = [&h](const auto&) { h.engine().ExitBackgroundLoop(); };
  h.StartAndLoad();
  h.Add("a", Prompt(10), Greedy(-1));
  h.Add("b", Prompt(10), Greedy(-1));
  forward.Open();
  h.AwaitAll();
  h.JoinBackground();
}

TEST(ThreadedEngine, ABlockedCallbackHoldsUpNeitherTheEngineNorItsExit) {
  Gate in_callback;
  ThreadedHarness h;
  h.on_outputs = [&](const auto&) { in_callback.Pass(); };
  h.StartAndLoad();
  h.Add("a", Prompt(10), Greedy(-1));
  in_callback.AwaitArrival();
  h.Add("b", Prompt(10), Greedy(5));
  h.engine().AbortRequest("a");
  h.engine().ExitBackgroundLoop();
  h.JoinBackground();  // while the callback is blocked
  in_callback.Open();
  h.ExitAndJoin();
  h.ExpectAllFinal();
}

TEST(ThreadedEngine, ABlockingCallWithoutLoopsThrows) {
  ThreadedHarness h;
  EXPECT_THAT(Refusal([&] { h.Load(); }), HasSubstr("background loop is not running"));
  h.StartAndLoad();
  h.ExpectHealthy();
}

TEST(ThreadedEngine, ALoopRunsOnce) {
  ThreadedHarness h;
  h.StartAndLoad();
  EXPECT_THROW(h.engine().RunBackgroundLoop(), InvalidConfig);
  h.ExitAndJoin();
  h.engine().RunBackgroundLoop();  // returns at once
  h.engine().RunBackgroundStreamBackLoop();
}

TEST(ThreadedEngine, NeedsInitOnce) {
  const auto engine = ThreadedEngine::Create();
  EXPECT_THROW(engine->RunBackgroundLoop(), InvalidConfig);
  EXPECT_THROW(engine->InitThreadedEngine("cpu", nullptr, nullptr), InvalidConfig);
  engine->InitThreadedEngine("cpu", [](auto) {}, nullptr);
  EXPECT_THROW(engine->InitThreadedEngine("cpu", [](auto) {}, nullptr), InvalidConfig);
}

TEST(ThreadedEngine, TheDestructorEndsTheLoops) {
  auto engine = ThreadedEngine::Create();
  std::promise<void> called_back;
  engine->InitThreadedEngine("cpu", [&called_back](auto) { called_back.set_value(); }, nullptr);
  std::thread background([raw = engine.get()] { raw->RunBackgroundLoop(); });
  std::thread stream_back([raw = engine.get()] { raw->RunBackgroundStreamBackLoop(); });
  const RequestLimits limits{.vocab_size = 9, .max_num_sequence = 1, .max_sequence_length = 9};
  engine->AddRequest(CreateRequest("a", {TokenData{{1}}}, {}, limits));
  called_back.get_future().wait();  // both loops are inside
  engine.reset();
  background.join();
  stream_back.join();
}

TEST(ThreadedEngine, ProgressRunsOnTheLoopWhereBlockingCallsAreRefused) {
  std::string refusal;
  ThreadedHarness h({}, [](const EngineConfig&, const EngineOptions& options) {
    options.load_progress(1, 2);
    return std::unique_ptr<Engine>();
  });
  h.Start();
  EXPECT_THROW(h.engine().Reload(h.ReloadJson(),
                                 [&](int64_t done, int64_t total) {
                                   EXPECT_EQ(done + total, 3);
                                   refusal = Refusal([&] { h.engine().JSONMetrics(); });
                                   throw std::runtime_error("cancelled");
                                 }),
               std::runtime_error);
  EXPECT_THAT(refusal, HasSubstr("cannot wait for itself"));
}

TEST(ThreadedEngine, AForkedChildIsToldAndCanDropTheEngine) {
  auto h = std::make_unique<ThreadedHarness>();
  h->StartAndLoad();
  auto idle = ThreadedEngine::Create();
  idle->InitThreadedEngine("cpu", [](auto) {}, nullptr);
  idle->Start();
  EXPECT_THROW(idle->JSONMetrics(), InvalidRequest);
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);  // a hang is a failure
    int failures = 0;
    const auto expect_refusal = [&failures](const auto& action) {
      try {
        action();
        ++failures;
      } catch (const InvalidRequest& e) {
        failures += std::string(e.what()).find("fork") == std::string::npos;
      }
    };
    expect_refusal([&] { h->engine().JSONMetrics(); });
    expect_refusal([&] { h->engine().CreateRequest("a", {TokenData{{1}}}, {}); });
    expect_refusal([&] { h->engine().AbortRequest("a"); });
    h->engine().ExitBackgroundLoop();
    idle.reset();
    _exit(failures);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  h->ExpectHealthy();
}

TEST(ThreadedEngine, StopsAndStartsAtAnyTime) {
  const auto engine = ThreadedEngine::Create();
  EXPECT_THROW(engine->Start(), InvalidConfig) << "no callback";
  std::promise<std::string> refusal;
  engine->InitThreadedEngine(
      "cpu", [&](auto) { refusal.set_value(Refusal([&] { engine->Stop(); })); }, nullptr);
  engine->Start();
  EXPECT_THROW(engine->Start(), InvalidConfig);
  const RequestLimits limits{.vocab_size = 9, .max_num_sequence = 1, .max_sequence_length = 9};
  engine->AddRequest(CreateRequest("a", {TokenData{{1}}}, {}, limits));
  EXPECT_THAT(refusal.get_future().get(), HasSubstr("cannot wait for its own end"));
  engine->Stop();
  engine->Stop();
  engine->Start();  // both loops have ended
  EXPECT_THAT(Refusal([&] { engine->JSONMetrics(); }), HasSubstr("exited"));
}

TEST(ThreadedEngine, CallsRunOnTheLoadedEngine) {
  ThreadedHarness h;
  h.Start();
  EXPECT_THAT(Refusal([&] { h.engine().Call([](Engine&) {}); }), HasSubstr("No model is loaded"));
  h.Load();
  const auto caller = std::this_thread::get_id();
  EXPECT_NE(h.engine().Call([](Engine&) { return std::this_thread::get_id(); }), caller);
  EXPECT_TRUE(h.engine().Call([](Engine& engine) { return engine.Empty(); }));
  EXPECT_THROW(h.engine().Call([](Engine&) { throw std::logic_error("from the function"); }),
               std::logic_error);
  std::string refusal;
  h.engine().Call([&](Engine&) { refusal = Refusal([&] { h.engine().JSONMetrics(); }); });
  EXPECT_THAT(refusal, HasSubstr("cannot wait for itself"));
  h.ExpectHealthy();
}

}  // namespace
}  // namespace mlc_native
