// What happens to a loaded engine as a whole: reloads in a row, aborting and resetting everything,
// debug functions. Single requests and failures are in threaded_engine_test.cc and
// threaded_fault_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "fake_model/path.h"
#include "mlc_native/threaded_engine.h"
#include "support/error.h"
#include "support/machine_info.h"
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
using testing::ThreadedHarness;

// Sanitizers keep freed memory for a while; AddressSanitizer finds leaks by itself.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kFreedMemoryIsGone = false;
#else
constexpr bool kFreedMemoryIsGone = true;
#endif

int64_t CountEntries(const char* path) {
  return std::distance(std::filesystem::directory_iterator(path), {});
}

// ---- reload

// W2, W35: to another model and back with requests in flight; nothing stays behind.
TEST(ThreadedLifecycle, FiftyReloadsLeaveNothingBehind) {
  const ModelFolder first(R"({"fake": {"vocab_size": 256}})");
  const ModelFolder second(R"({"fake": {"vocab_size": 200}})");
  ThreadedHarness h({}, Engine::Create);
  h.Start();
  // A million tokens of the fake model's cache are 4 MiB, so an engine that stays behind is seen.
  json config = {{"model_lib", kFakeModelPath},
                 {"num_threads", 1},
                 {"max_total_sequence_length", 1 << 20},
                 {"max_num_sequence", 2}};
  int num_requests = 0;
  const auto reload = [&](const ModelFolder& folder) {
    config["model"] = folder.path();
    h.engine().Reload(config.dump());
    for (int i = 0; i < 4; ++i) {  // two run, two wait when the next reload comes
      h.Add(std::to_string(num_requests++), Prompt(30, i), Greedy(-1));
    }
    h.AwaitTokens(std::to_string(num_requests - 4), 1);
  };
  // What is allocated once (arenas of the allocator, the trace of the first load) comes first.
  for (int i = 0; i < 10; ++i) reload(i % 2 == 0 ? first : second);
  const int64_t num_threads = CountEntries("/proc/self/task");
  const int64_t num_fds = CountEntries("/proc/self/fd");
  const int64_t resident = ResidentMemoryBytes();
  for (int i = 0; i < 50; ++i) reload(i % 2 == 0 ? first : second);
  EXPECT_EQ(CountEntries("/proc/self/task"), num_threads);
  EXPECT_EQ(CountEntries("/proc/self/fd"), num_fds);
  // One engine's cache: the answers that the checker keeps and fragments of the heap are less.
  if (kFreedMemoryIsGone) EXPECT_LT(ResidentMemoryBytes(), resident + (8 << 20));
  h.engine().Unload();
  h.AwaitAll();
}

TEST(ThreadedLifecycle, RequestsThatRaceWithReloadsEndOnce) {
  ThreadedHarness h;
  h.StartAndLoad();
  testing::Threads threads(4, [&h](int t) {
    for (int i = 0; i < 50; ++i) {
      try {
        h.Add(std::to_string(t) + '.' + std::to_string(i), Prompt(1 + i), Greedy(5));
      } catch (const InvalidRequest& refused) {
        EXPECT_THAT(refused.what(), HasSubstr("No model is loaded"));
      }
    }
  });
  for (int i = 0; i < 20; ++i) h.Load();
  threads.Join();
  h.AwaitAll();
  h.ExpectHealthy();
}

// ---- abort all, reset

TEST(ThreadedLifecycle, AbortAllEndsWhatWasAddedBefore) {
  Gate forward;
  ThreadedHarness h;
  h.on_forward = [&](const ForwardBatch&) { forward.Pass(); };
  h.StartAndLoad();
  h.Add("running", Prompt(10), Greedy(-1));
  forward.AwaitArrival();
  for (int i = 0; i < 20; ++i) h.Add("waiting " + std::to_string(i), Prompt(10, i), Greedy(-1, 2));
  h.engine().AbortAllRequests();
  h.Add("later", Prompt(10, 5), Greedy(3));
  forward.Open();
  EXPECT_EQ(h.AwaitReason("running"), FinishReason::kAbort);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(h.AwaitReason("waiting " + std::to_string(i)), FinishReason::kAbort);
  }
  EXPECT_EQ(h.Await("later").only().token_ids, Oracle(h.model(), Prompt(10, 5), 3));
  EXPECT_EQ(json::parse(h.engine().JSONMetrics())["num_aborts"], 21);
  h.ExpectHealthy();
}

TEST(ThreadedLifecycle, AbortAllWithNothingLoadedOrRunning) {
  ThreadedHarness h;
  h.Start();
  EXPECT_NO_THROW(h.engine().AbortAllRequests());
  h.Load();
  h.engine().AbortAllRequests();
  h.ExpectHealthy();
  h.ExitAndJoin();
  EXPECT_NO_THROW(h.engine().AbortAllRequests());
}

TEST(ThreadedLifecycle, ResetClearsMetricsQueuesAndPages) {
  ThreadedHarness h;
  h.StartAndLoad();
  h.ExpectHealthy();
  for (int i = 0; i < 20; ++i) h.Add(std::to_string(i), Prompt(20, i), Greedy(-1));
  h.AwaitTokens("0", 1);
  h.engine().Reset();
  h.AwaitAll();
  const json metrics = json::parse(h.engine().JSONMetrics());
  for (const char* name :
       {"prompt_tokens_sum", "completion_tokens_sum", "num_steps", "num_aborts", "num_errors",
        "num_timeouts", "num_queue_full", "num_preemptions", "num_waiting_requests",
        "num_running_requests", "queue_length", "kv_pages_used", "kv_pages_cached"}) {
    EXPECT_EQ(metrics[name], 0) << name;
  }
  EXPECT_TRUE(metrics["finished_requests"].empty());
  EXPECT_EQ(metrics["ttft_s"]["count"], 0);
  const json state = json::parse(h.engine().DebugCallFuncOnAllAllWorker("dump_state"));
  EXPECT_TRUE(state["requests"].empty());
  EXPECT_EQ(state["num_live_ids"], 0);
  h.ExpectHealthy();
}

TEST(ThreadedLifecycle, ARequestMadeRightAfterAResetIsServedOnEveryThread) {
  ThreadedHarness h;
  h.StartAndLoad();
  testing::Threads threads(4, [&h](int t) {
    for (int i = 0; i < 25; ++i) {
      const std::string id = std::to_string(t) + '.' + std::to_string(i);
      h.engine().Reset();
      h.Add(id, Prompt(10, t), Greedy(6));
      // Another thread's reset may have ended it; then it is an abort and nothing else.
      const auto history = h.Await(id);
      const auto& tokens = history.only().token_ids;
      const auto expected = Oracle(h.model(), Prompt(10, t), std::ssize(tokens));
      EXPECT_EQ(tokens, expected);
      EXPECT_TRUE(history.only().finish_reason == FinishReason::kAbort || tokens.size() == 6);
    }
  });
  threads.Join();
  h.ExpectHealthy();
}

// ---- debug functions

TEST(ThreadedLifecycle, AnUnknownDebugFunctionListsThoseThatExist) {
  ThreadedHarness h;
  h.StartAndLoad();
  try {
    h.engine().DebugCallFuncOnAllAllWorker("profiler");
    ADD_FAILURE() << "called";
  } catch (const InvalidRequest& error) {
    EXPECT_EQ(error.field(), "name");
    for (const char* name :
         {"dump_state", "audit_pages", "memory_summary", "profiler_start", "profiler_stop"}) {
      EXPECT_THAT(error.what(), HasSubstr(std::string(name) + ": "));
    }
  }
}

// W20: the reference calls the function of the first name for every later name.
TEST(ThreadedLifecycle, W20EachDebugCallRunsItsOwnFunction) {
  testing::TestEngineSetup setup = testing::EndlessSetup();
  setup.model.run_ahead = false;  // as many steps as tokens
  ThreadedHarness h(setup);
  h.StartAndLoad();
  for (int round = 1; round <= 2; ++round) {
    EXPECT_EQ(h.engine().DebugCallFuncOnAllAllWorker("profiler_start"), "{}");
    h.ExpectHealthy();  // 5 tokens, 5 forwards; and a debug call of another name
    const json profile = json::parse(h.engine().DebugCallFuncOnAllAllWorker("profiler_stop"));
    for (const char* phase : {"step", "reserve", "forward", "sample", "commit"}) {
      EXPECT_EQ(profile["phases"][phase]["count"], 5) << phase;
    }
    const json& step = profile["phases"]["step"];
    EXPECT_GE(profile["wall_s"], step["sum_s"]);
    EXPECT_GE(step["sum_s"], profile["phases"]["forward"]["sum_s"]);
    EXPECT_GE(step["sum_s"], step["max_s"]);
  }
  h.ExpectHealthy();  // while it is off
  const json profile = json::parse(h.engine().DebugCallFuncOnAllAllWorker("profiler_stop"));
  EXPECT_EQ(profile["phases"]["step"]["count"], 5);  // what the last profile had
}

TEST(ThreadedLifecycle, MemorySummary) {
  testing::TestEngineSetup setup;
  setup.num_pages = 100;
  ThreadedHarness h(setup);
  h.StartAndLoad();
  const json memory = json::parse(h.engine().DebugCallFuncOnAllAllWorker("memory_summary"));
  EXPECT_EQ(memory["kv_pool"], 100 * 16 * setup.model.kv_bytes_per_token);
  EXPECT_EQ(memory["kv_used"], 0);
  EXPECT_GT(memory["process_resident"], 1 << 20);
}

}  // namespace
}  // namespace mlc_native
