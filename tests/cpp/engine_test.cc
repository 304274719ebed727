// The engine's surface: admission, steps, information. What it computes when requests share it is
// in engine_batching_test.cc, what it says in engine_output_test.cc, failures in
// engine_fault_test.cc.
#include "mlc_native/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cfenv>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "observe/event_trace.h"
#include "support/check.h"
#include "support/error.h"
#include "testing/test_engine.h"
#include "testing/virtual_clock.h"

namespace mlc_native::testing {
namespace {

using nlohmann::json;

// Step (from 1) at which each request got its final output.
class FinishSteps {
 public:
  explicit FinishSteps(TestEngine& engine) {
    engine.on_outputs = [this, &engine](const std::vector<RequestStreamOutput>& outputs) {
      for (const RequestStreamOutput& output : outputs) {
        if (output.is_final()) steps_[output.request_id] = engine.num_steps() + 1;
      }
    };
  }
  int64_t of(const std::string& id) const { return steps_.at(id); }

 private:
  std::map<std::string, int64_t> steps_;
};

TEST(Engine, AnswersLikeTheModelAlone) {
  TestEngineSetup setup;
  TestEngine engine(setup);
  engine.Add("a", Prompt(40), Greedy(20));
  engine.Run();
  EXPECT_EQ(engine.Answer("a").token_ids, Oracle(setup.model, Prompt(40), 20));
  EXPECT_EQ(engine.Answer("a").finish_reason, FinishReason::kLength);
}

bool RoundsUpward() {
  volatile float one = 1, little = 1e-9f;  // computed at run time
  return one + little > 1;
}

// A host may compute in another way; its thread does again behind a step.
TEST(Engine, RoundsToTheNearestNumberWhateverTheHostDoes) {
  std::fesetround(FE_UPWARD);
  TestEngine engine(TestEngineSetup{});
  std::vector<bool> roundings;
  engine.on_outputs = [&](const std::vector<RequestStreamOutput>&) {
    roundings.push_back(RoundsUpward());
  };
  engine.Add("a", Prompt(40), Greedy(3));
  engine.Run();
  const bool after = RoundsUpward();
  std::fesetround(FE_TONEAREST);
  EXPECT_THAT(roundings, ::testing::ElementsAre(false, false, false));
  EXPECT_TRUE(after);
}

TEST(Engine, RequestsAddedTogetherFinishAtTheirMaxTokensthStep) {
  TestEngineSetup setup{.model = Waited(), .prefill_chunk_size = 512};
  for (PrefillMode mode : {PrefillMode::kChunked, PrefillMode::kHybrid}) {
    setup.prefill_mode = mode;
    TestEngine engine(setup);
    FinishSteps finish(engine);
    const std::vector<int64_t> max_tokens = {5, 1, 17, 3, 9, 2};
    for (size_t i = 0; i < max_tokens.size(); ++i) {
      engine.Add(std::to_string(i), Prompt(10 + i), Greedy(max_tokens[i]));
    }
    engine.Run();
    for (size_t i = 0; i < max_tokens.size(); ++i) {
      EXPECT_EQ(finish.of(std::to_string(i)), max_tokens[i]);
    }
  }
}

TEST(Engine, HybridDecodeNeverStallsForPrefill) {
  TestEngine engine({.model = Waited(), .max_num_sequence = 16, .prefill_chunk_size = 64});
  FinishSteps finish(engine);
  constexpr int kRequests = 10;
  constexpr int kMaxTokens = 12;
  for (int i = 0; i < kRequests; ++i) {
    engine.Add(std::to_string(i), Prompt(30, i), Greedy(kMaxTokens));
    engine.Step();
  }
  engine.Run();
  // Added before step i + 1, one token at each step.
  for (int i = 0; i < kRequests; ++i) EXPECT_EQ(finish.of(std::to_string(i)), i + kMaxTokens);
}

TEST(Engine, ChunkedPrefillGoesBeforeDecode) {
  TestEngine engine(
      {.model = Waited(), .prefill_chunk_size = 16, .prefill_mode = PrefillMode::kChunked});
  FinishSteps finish(engine);
  engine.Add("a", Prompt(5), Greedy(2));
  engine.Step();
  engine.Add("b", Prompt(48), Greedy(1));
  engine.Run();
  EXPECT_EQ(finish.of("b"), 4);
  EXPECT_EQ(finish.of("a"), 5);
}

TEST(Engine, StepOfAnEmptyEngineDoesNothing) {
  TestEngine engine({});
  engine.Step();
  EXPECT_EQ(engine.model().num_forwards(), 0);
}

TEST(Engine, AnIdInUseIsRefusedAndTheFirstGoesOn) {
  TestEngineSetup setup;
  TestEngine engine(setup);
  engine.Add("a", Prompt(20), Greedy(10));
  engine.Step();
  const RequestPtr second =
      CreateRequest("a", {TokenData{Prompt(3)}}, Greedy(2), engine.engine().request_limits());
  EXPECT_THROW(engine.engine().AddRequest(second), InvalidRequest);
  engine.Run();
  EXPECT_EQ(engine.Answer("a").token_ids, Oracle(setup.model, Prompt(20), 10));
  engine.checker().Forget("a");
  engine.Add("a", Prompt(3), Greedy(2));  // free again
  engine.Run();
}

// The answers beyond the capacity start when others have ended, and count the prompt once.
TEST(Engine, AnswersBeyondTheCapacityWait) {
  for (const PrefixCacheMode cache : {PrefixCacheMode::kRadix, PrefixCacheMode::kDisable}) {
    for (const int64_t capacity : {1, 2, 4}) {
      TestEngine engine({.max_num_sequence = capacity, .prefix_cache_mode = cache});
      engine.Add("a", Prompt(20), Greedy(5, 9));
      engine.Add("b", Prompt(30), Greedy(3));
      engine.Run();
      for (int i = 0; i < 9; ++i) EXPECT_EQ(engine.Answer("a", i).token_ids.size(), 5u) << i;
      EXPECT_EQ(engine.Answer("b").token_ids.size(), 3u);
      const json usage = json::parse(*engine.History("a").usage);
      EXPECT_EQ(usage["prompt_tokens"], 20);
      EXPECT_EQ(usage["completion_tokens"], 45);
    }
  }
}

TEST(Engine, RefusesWhatItCanNotServe) {
  TestEngine engine({.max_num_sequence = 4, .max_single_sequence_length = 100});
  const RequestLimits generous{
      .vocab_size = 1 << 20, .max_num_sequence = 100, .max_sequence_length = 1 << 20};
  const auto add = [&](std::vector<int32_t> prompt, const GenerationConfig& config) {
    engine.engine().AddRequest(CreateRequest("a", {TokenData{prompt}}, config, generous));
  };
  EXPECT_THROW(add(Prompt(101), Greedy(1)), InvalidRequest);
  EXPECT_THROW(add({256}, Greedy(1)), InvalidRequest);
  EXPECT_THROW(add(Prompt(3), Greedy(1, 1025)), InvalidRequest);
  GenerationConfig stop = Greedy(1);
  stop.stop_strs = {"x"};
  EXPECT_THROW(add(Prompt(3), stop), InvalidRequest) << "there is no token table";
  EXPECT_TRUE(engine.engine().Empty());
  engine.Add("a", Prompt(100), Greedy(5));
  engine.Run();
  EXPECT_EQ(engine.Answer("a").token_ids.size(), 1u);
  EXPECT_EQ(engine.Answer("a").finish_reason, FinishReason::kLength);
}

TEST(Engine, RefusesConfigsItCanNotRun) {
  const auto create = [](const TestEngineSetup& setup) { TestEngine engine(setup); };
  EXPECT_THROW(create({.max_num_sequence = 0}), InvalidConfig);
  EXPECT_THROW(create({.max_num_sequence = 65, .prefill_chunk_size = 64}), InvalidConfig);
  EXPECT_THROW(create({.num_pages = 0}), InvalidConfig);
  const auto refused_field = [](SpeculativeMode mode) -> std::string {
    EngineConfig config;
    config.speculative_mode = mode;
    try {
      Engine::Create(config, {});
    } catch (const InvalidConfig& error) {
      return error.field();
    }
    return "none";
  };
  for (const auto mode : {SpeculativeMode::kSmallDraft, SpeculativeMode::kEagle3,
                          SpeculativeMode::kEagle, SpeculativeMode::kMedusa}) {
    EXPECT_EQ(refused_field(mode), "additional_models");
  }
}

TEST(Engine, CreateNamesTheDevicesThereCanBe) {
  EngineOptions options;
  options.device = "gpu:3";
  try {
    Engine::Create(EngineConfig(), options);
    FAIL();
  } catch (const InvalidConfig& error) {
    EXPECT_EQ(error.field(), "device");
    EXPECT_NE(std::string(error.what()).find("cpu"), std::string::npos);
  }
}

TEST(Engine, ResetAbortsAllAndClearsMetrics) {
  TestEngine engine({});
  engine.Add("a", Prompt(20), Greedy(-1));
  engine.Add("b", Prompt(90), Greedy(10, 3));
  engine.Step();
  engine.engine().Reset();
  engine.ExpectIdle();
  EXPECT_EQ(engine.Answer("b", 2).finish_reason, FinishReason::kAbort);
  EXPECT_EQ(json::parse(engine.engine().JSONMetrics())["num_aborts"], 0);
  engine.Add("c", Prompt(20), Greedy(3));
  engine.Run();
  EXPECT_EQ(engine.Answer("c").token_ids.size(), 3u);
}

TEST(Engine, MetricsCountWhatHappened) {
  TestEngine engine({.prefill_chunk_size = 16});
  engine.Add("a", Prompt(20), Greedy(5));
  engine.Add("b", Prompt(7, 1), Greedy(4, 2));
  engine.Run();
  const json usage_a = json::parse(*engine.History("a").usage);
  EXPECT_EQ(usage_a["prompt_tokens"], 20);
  EXPECT_EQ(usage_a["completion_tokens"], 5);
  EXPECT_EQ(usage_a["extra"]["prefill_tokens"], 20);
  EXPECT_EQ(usage_a["extra"]["decode_tokens"], 4);
  const json usage_b = json::parse(*engine.History("b").usage);
  EXPECT_EQ(usage_b["completion_tokens"], 8);
  EXPECT_EQ(usage_b["extra"]["prefill_tokens"], 7) << "the prompt of branches counts once";
  EXPECT_EQ(usage_b["extra"]["decode_tokens"], 6);

  const json metrics = json::parse(engine.engine().JSONMetrics());
  EXPECT_EQ(metrics["prompt_tokens_sum"], 27);
  EXPECT_EQ(metrics["completion_tokens_sum"], 13);
  EXPECT_EQ(metrics["prefill_tokens_sum"], 27);
  EXPECT_EQ(metrics["decode_tokens_sum"], 10);
  EXPECT_EQ(metrics["ttft_s"]["count"], 2);
  EXPECT_EQ(metrics["inter_token_latency_s"]["count"], 10);
  EXPECT_EQ(metrics["num_steps"], engine.model().num_forwards());
  EXPECT_EQ(metrics["finished_requests"]["length"], 2);
  EXPECT_EQ(metrics["kv_pages_used"], 0);
  EXPECT_EQ(metrics["kv_pages_free"].get<int>() + metrics["kv_pages_cached"].get<int>(), 256);
  EXPECT_GT(metrics["engine_prefill_time_sum"], 0);
  EXPECT_GT(metrics["engine_decode_time_sum"], 0);
  EXPECT_EQ(metrics["decode_time_by_batch_size"].count("count{batch_size=3}"), 1u);
}

TEST(Engine, AllTimesComeFromTheGivenClock) {
  VirtualClock clock;
  TestEngine engine({.model = Waited(), .prefill_chunk_size = 16, .now = clock.function()});
  engine.model().set_on_forward([&clock](const ForwardBatch&) { clock.Advance(1); });
  engine.Add("a", Prompt(32), Greedy(5));  // two chunks, then four steps of decode
  clock.Advance(10);
  engine.Run();
  const json usage = json::parse(*engine.History("a").usage)["extra"];
  EXPECT_EQ(usage["queue_time_s"], 10);
  EXPECT_EQ(usage["ttft_s"], 12);
  EXPECT_EQ(usage["end_to_end_latency_s"], 16);
  EXPECT_EQ(usage["inter_token_latency_s"], 1);
  const json metrics = json::parse(engine.engine().JSONMetrics());
  EXPECT_EQ(metrics["engine_prefill_time_sum"], 2);
  EXPECT_EQ(metrics["engine_decode_time_sum"], 4);
  EXPECT_EQ(metrics["ttft_s"]["sum"], 12);
  EXPECT_EQ(metrics["inter_token_latency_s"]["sum"], 4);
}

TEST(Engine, GaugesFollowTheQueues) {
  TestEngine engine({.max_num_sequence = 2});
  for (int32_t i = 0; i < 3; ++i) engine.Add(std::to_string(i), Prompt(17, i), Greedy(5));
  engine.Step();
  const json metrics = json::parse(engine.engine().JSONMetrics());
  EXPECT_EQ(metrics["num_running_requests"], 2);
  EXPECT_EQ(metrics["num_waiting_requests"], 1);
  EXPECT_EQ(metrics["kv_pages_used"], 4);
  engine.Run();
}

TEST(Engine, MetricsCanBeAskedForByARequest) {
  TestEngine engine({});
  GenerationConfig config = Greedy(5);
  config.debug_config.special_request = "query_engine_metrics";
  engine.Add("metrics", Prompt(1), config);
  EXPECT_TRUE(engine.engine().Empty());
  const json usage = json::parse(*engine.History("metrics").usage);
  EXPECT_EQ(usage["completion_tokens"], 0);
  EXPECT_EQ(usage["extra"]["kv_pages_free"], 256);
}

TEST(Engine, DebugCalls) {
  TestEngine engine({.model = Waited()});
  engine.Add("a", Prompt(20), Greedy(5, 2));
  engine.Step();
  const json pages = json::parse(engine.engine().DebugCall("audit_pages"));
  EXPECT_EQ(pages["kv_pages_used"], 2);
  EXPECT_EQ(pages["num_live_ids"], 2);
  const json state = json::parse(engine.engine().DebugCall("dump_state"));
  EXPECT_EQ(state["running_queue"], json::array({"a"}));
  EXPECT_EQ(state["requests"]["a"].size(), 3u);
  EXPECT_EQ(state["requests"]["a"][1]["kv_len"], 20);
  try {
    engine.engine().DebugCall("nonsense");
    FAIL();
  } catch (const InvalidRequest& error) {
    EXPECT_NE(std::string(error.what()).find("dump_state"), std::string::npos);
  }
  engine.Run();
}

TEST(Engine, TraceCoversTheLifeOfARequest) {
  TestEngineSetup setup{.model = Waited()};
  setup.trace = std::make_shared<EventTraceRecorder>();
  TestEngine engine(setup);
  engine.Add("a", Prompt(20), Greedy(3));
  engine.Run();
  std::map<std::string, int> count;
  for (const json& event : json::parse(setup.trace->DumpJSON())) {
    const std::string name = event["name"];
    ++count[name.substr(0, name.find(" (")) + ' ' + event["ph"].get<std::string>()];
  }
  EXPECT_EQ(count["request added i"], 1);
  for (const char* phase : {"B", "E"}) {
    EXPECT_EQ(count[std::string("queue wait ") + phase], 1);
    EXPECT_EQ(count[std::string("prefill ") + phase], 1);
    EXPECT_EQ(count[std::string("decode ") + phase], 2);
    EXPECT_EQ(count[std::string("sampling ") + phase], 3);
    EXPECT_EQ(count[std::string("callback ") + phase], 3);
  }
}

TEST(Engine, LivesWithoutACallback) {
  const TestEngineSetup setup;
  const auto engine =
      Engine::FromModel(std::make_unique<FakeModel>(setup.model), setup.Apply({}), {}, nullptr, {});
  engine->AddRequest(engine->CreateRequest("a", {TokenData{Prompt(20)}}, Greedy(3)));
  while (!engine->Empty()) engine->Step();
  engine->AuditPages();
}

}  // namespace
}  // namespace mlc_native::testing
