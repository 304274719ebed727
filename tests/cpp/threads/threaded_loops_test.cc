// The two loops of a ThreadedEngine: how they start and end, and calls that need them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <thread>

#include <nlohmann/json.hpp>

#include "mlc_native/threaded_engine.h"
#include "support/error.h"
#include "testing/error_message.h"
#include "testing/threaded_harness.h"

namespace mlc_native {
namespace {

using nlohmann::json;
using testing::Gate;
using testing::Greedy;
using ::testing::HasSubstr;
using testing::Prompt;
using testing::Refusal;
using testing::ThreadedHarness;

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

// Stop waits for the callback, which must not wait for Stop.
TEST(ThreadedEngine, ACallbackCannotStartTheLoops) {
  const RequestLimits limits{.vocab_size = 9, .max_num_sequence = 1, .max_sequence_length = 9};
  for (int round = 0; round < 10; ++round) {
    Gate callback;
    std::promise<bool> refused;
    const auto engine = ThreadedEngine::Create();
    engine->InitThreadedEngine(
        "cpu",
        [&](auto) {
          callback.Pass();
          try {
            engine->Start();
            refused.set_value(false);
          } catch (const InvalidConfig&) {
            refused.set_value(true);
          }
        },
        nullptr);
    engine->Start();
    engine->AddRequest(CreateRequest("a", {TokenData{{1}}}, {}, limits));
    callback.AwaitArrival();
    std::thread stop([&] { engine->Stop(); });
    const auto metrics = [&] { return Refusal([&] { engine->JSONMetrics(); }); };
    while (metrics().find("exited") == std::string::npos) {
    }
    callback.Open();
    EXPECT_TRUE(refused.get_future().get());
    stop.join();
  }
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
