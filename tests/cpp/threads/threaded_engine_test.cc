#include "mlc_native/threaded_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <vector>

#include <nlohmann/json.hpp>

#include "fake_model/path.h"
#include "observe/event_trace.h"
#include "testing/error_message.h"
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
using testing::Refusal;
using testing::TestEngineSetup;
using testing::ThreadedHarness;

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

// Outputs of several steps that reach the callback together are those of one callback.
TEST(ThreadedEngine, TracesACallbackOncePerRequest) {
  TestEngineSetup setup;
  setup.trace = std::make_shared<EventTraceRecorder>();
  ThreadedHarness h(setup);
  Gate steps;
  Gate callbacks;
  h.on_forward = [&steps](const ForwardBatch&) { steps.Pass(); };
  h.on_outputs = [&callbacks](const std::vector<RequestStreamOutput>&) { callbacks.Pass(); };
  h.StartAndLoad();
  h.Add("a", Prompt(10), Greedy(5));
  steps.AwaitArrival();
  h.Add("b", Prompt(10), Greedy(5));
  steps.Open();
  const auto num_finished = [&h] {
    return json::parse(h.engine().JSONMetrics())["finished_requests"].value("length", 0);
  };
  while (num_finished() < 2) std::this_thread::yield();
  callbacks.Open();
  h.AwaitAll();
  h.ExitAndJoin();
  std::map<std::string, int> num_callbacks;  // by request
  for (const json& event : json::parse(setup.trace->DumpJSON())) {
    const std::string name = event["name"];
    if (event["ph"] == "B" && name.starts_with("stream callback")) ++num_callbacks[event["tid"]];
  }
  EXPECT_LE(num_callbacks["a"], h.num_callbacks());
  EXPECT_LE(num_callbacks["b"], h.num_callbacks());
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

}  // namespace
}  // namespace mlc_native
