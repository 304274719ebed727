// Steps that run ahead: what is submitted when, what becomes of rows that are no longer needed, and
// that the answers are those of an engine that waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "mlc_native/tokenizer.h"
#include "observe/event_trace.h"
#include "testing/test_engine.h"
#include "testing/virtual_clock.h"

namespace mlc_native::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using Tokens = std::vector<int32_t>;

TestEngineSetup RunAhead(TestEngineSetup setup = {}) {
  setup.model.run_ahead = true;
  return setup;
}

// Letters a to z are 0 to 25.
std::shared_ptr<const TokenTable> LettersAlone() {
  std::vector<std::string> bytes(256);
  for (int i = 0; i < 26; ++i) bytes[i] = std::string(1, static_cast<char>('a' + i));
  return std::make_shared<TokenTable>(bytes, std::vector<bool>(256), false);
}

// Writes down the calls of the model: "F" a forward, "C" a collect, and when a request is final.
class Calls {
 public:
  explicit Calls(TestEngine& engine) {
    engine.model().set_on_forward([this](const ForwardBatch&) { log_.emplace_back("F"); });
    engine.model().steps().set_on_collect([this] { log_.emplace_back("C"); });
    engine.on_outputs = [this](const std::vector<RequestStreamOutput>& outputs) {
      for (const RequestStreamOutput& output : outputs) {
        if (output.is_final()) log_.push_back(output.request_id);
      }
    };
  }
  const std::vector<std::string>& log() const { return log_; }

 private:
  std::vector<std::string> log_;
};

void ExpectServesTheNext(TestEngine& engine) {
  engine.Add("next", Prompt(33, 9), Greedy(9));
  engine.Run();
  EXPECT_EQ(engine.Answer("next").token_ids, Oracle(engine.model().options(), Prompt(33, 9), 9));
  EXPECT_EQ(engine.model().steps().num_in_flight(), 0);
}

// ---- the order of calls

TEST(EngineRunAhead, AStepIsSubmittedBeforeTheOneBeforeIsCollected) {
  TestEngine engine(RunAhead());
  Calls calls(engine);
  engine.Add("a", Prompt(5), Greedy(4));
  engine.Run();
  EXPECT_THAT(calls.log(), ElementsAre("F", "F", "C", "F", "C", "F", "C", "C", "a"))
      << "nothing is computed behind a token that is surely the last";
  EXPECT_EQ(engine.Answer("a").token_ids, Oracle(engine.model().options(), Prompt(5), 4));
}

TEST(EngineRunAhead, ATokenIsDeliveredWhenItsStepIsCollected) {
  TestEngine engine(RunAhead());
  engine.Add("a", Prompt(5), Greedy(20));
  engine.Step();
  EXPECT_EQ(engine.model().steps().num_in_flight(), 1);
  for (size_t i = 1; i < 20; ++i) {
    EXPECT_EQ(engine.Answer("a").token_ids.size(), i - 1);
    engine.Step();
    EXPECT_EQ(engine.model().steps().num_collects(), i);
  }
  engine.Run();
}

TEST(EngineRunAhead, AGrammarIsWaitedFor) {
  TestEngineSetup setup = RunAhead();
  setup.token_table = LettersAlone();
  TestEngine engine(setup);
  Calls calls(engine);
  GenerationConfig config = Greedy(10);
  config.response_format = {ResponseFormatType::kRegex, "abc", {}};
  engine.Add("a", Prompt(5), config);
  engine.Run();
  EXPECT_THAT(calls.log(), ElementsAre("F", "C", "F", "C", "F", "C", "a"));
  EXPECT_EQ(engine.Answer("a").text, "abc");
}

TEST(EngineRunAhead, BranchesAreWaitedForOnce) {
  TestEngine engine(RunAhead());
  Calls calls(engine);
  engine.Add("a", Prompt(5), Greedy(3, 2));
  engine.Run();
  EXPECT_THAT(calls.log(), ElementsAre("F", "C", "F", "F", "C", "C", "a"));
}

TEST(EngineRunAhead, PromptsInChunksRunAhead) {
  TestEngine engine(RunAhead({.prefill_chunk_size = 8}));
  Calls calls(engine);
  engine.Add("a", Prompt(20), Greedy(2));
  engine.Run();
  EXPECT_THAT(calls.log(), ElementsAre("F", "F", "C", "F", "C", "F", "C", "C", "a"));
}

// Only what a guess could follow is waited for: with a drafter, too, prompts run ahead.
TEST(EngineRunAhead, PromptsRunAheadUntilAGuessMayFollow) {
  for (const bool has_head : {false, true}) {
    TestEngineSetup setup = RunAhead({.prefill_chunk_size = 8});
    setup.model.history_window = 2;
    setup.speculative_mode = has_head ? SpeculativeMode::kEagle3 : SpeculativeMode::kNGram;
    setup.spec_draft_length = 2;
    if (has_head) {
      setup.model.gives_states = true;
      setup.draft_model = setup.model;
      setup.draft_model->is_draft_head = true;
    }
    TestEngine engine(setup);
    Calls calls(engine);
    engine.Add("a", Prompt(28), Greedy(4));
    engine.Run();
    const std::vector<std::string> prompt = {"F", "F", "C", "F", "C", "F", "C", "C"};
    ASSERT_GT(calls.log().size(), prompt.size());
    EXPECT_THAT(std::vector(calls.log().begin(), calls.log().begin() + std::ssize(prompt)),
                ElementsAreArray(prompt));
    EXPECT_EQ(engine.Answer("a").token_ids, Oracle(setup.model, Prompt(28), 4));
    if (!has_head) continue;
    const json spec = json::parse(engine.engine().JSONMetrics())["spec_decode"];
    EXPECT_EQ(spec["num_failures"], 0);
    EXPECT_EQ(spec["num_accepted_tokens"], 2);
    EXPECT_EQ(engine.draft_model().num_misaligned(), 0);
  }
}

TEST(EngineRunAhead, NobodyIsPreemptedBecauseOfWhoHasEnded) {
  // Six pages: "a" ends on the step in which both need a fourth one.
  TestEngine engine(RunAhead({.num_pages = 6, .prefix_cache_mode = PrefixCacheMode::kDisable}));
  engine.Add("a", Prompt(40), Greedy(9));
  engine.Add("b", Prompt(40, 1), Greedy(20));
  engine.Run();
  EXPECT_EQ(engine.Metric("num_preemptions"), 0);
  EXPECT_EQ(engine.Answer("b").token_ids, Oracle(engine.model().options(), Prompt(40, 1), 20));
}

TEST(EngineRunAhead, SpansOfARequestDoNotOverlap) {
  TestEngineSetup setup = RunAhead({.prefill_chunk_size = 16});
  setup.trace = std::make_shared<EventTraceRecorder>();
  TestEngine engine(setup);
  engine.Add("a", Prompt(20), Greedy(3));
  engine.Run();
  std::vector<std::string> spans;
  for (const json& event : json::parse(setup.trace->DumpJSON())) {
    const std::string name = event["name"];
    if (name.starts_with("prefill") || name.starts_with("decode")) {
      spans.push_back(name.substr(0, name.find(" (")) + ' ' + event["ph"].get<std::string>());
    }
  }
  EXPECT_THAT(spans, ElementsAre("prefill B", "prefill E", "prefill B", "prefill E", "decode B",
                                 "decode E", "decode B", "decode E"));
}

TEST(EngineRunAhead, StepsAreTimedFromTheEndOfTheStepBefore) {
  VirtualClock clock;
  TestEngineSetup setup = RunAhead();
  setup.now = clock.function();
  TestEngine engine(setup);
  engine.model().steps().set_on_collect([&clock] { clock.Advance(1); });
  engine.Add("a", Prompt(20), Greedy(5));
  engine.Run();
  const json metrics = json::parse(engine.engine().JSONMetrics());
  EXPECT_EQ(metrics["engine_prefill_time_sum"], 1);
  EXPECT_EQ(metrics["engine_decode_time_sum"], 4);
  EXPECT_EQ(metrics["ttft_s"]["sum"], 1);
  EXPECT_EQ(metrics["inter_token_latency_s"]["sum"], 4);
  EXPECT_EQ(json::parse(*engine.History("a").usage)["extra"]["end_to_end_latency_s"], 5);
}

// ---- rows that are no longer needed

TEST(EngineRunAhead, ARowBehindAStopIsDropped) {
  const FakeModelOptions model;
  const Tokens answer = Oracle(model, Prompt(5), 6);
  TestEngine engine(RunAhead());
  Calls calls(engine);
  GenerationConfig config = Greedy(20);
  config.stop_token_ids = {answer[2]};
  engine.Add("a", Prompt(5), config);
  engine.Run();
  EXPECT_THAT(calls.log(), ElementsAre("F", "F", "C", "F", "C", "F", "C", "a", "C"))
      << "the last output does not wait for it";
  EXPECT_EQ(engine.Answer("a").token_ids, Tokens(answer.begin(), answer.begin() + 2));
  EXPECT_EQ(json::parse(*engine.History("a").usage)["completion_tokens"], 3);
  ExpectServesTheNext(engine);
}

TEST(EngineRunAhead, TheIdOfARequestIsFreeWhileARowOfItIsInFlight) {
  const FakeModelOptions model;
  TestEngine engine(RunAhead());
  GenerationConfig config = Greedy(20);
  config.stop_token_ids = {Oracle(model, Prompt(5), 3)[2]};
  engine.Add("long", Prompt(9, 2), Greedy(40));
  engine.Add("a", Prompt(5), config);
  while (!engine.History("a").is_final()) engine.Step();
  EXPECT_EQ(engine.model().steps().num_in_flight(), 1);
  engine.checker().Forget("a");
  engine.Add("a", Prompt(7, 3), Greedy(20));
  engine.Run();
  EXPECT_EQ(engine.Answer("a").token_ids, Oracle(model, Prompt(7, 3), 20));
  EXPECT_EQ(engine.Answer("long").token_ids, Oracle(model, Prompt(9, 2), 40));
}

TEST(EngineRunAhead, AnAbortedRequestEndsAtOnceWithItsStepInFlight) {
  for (int num_steps : {1, 2, 5}) {
    TestEngine engine(RunAhead());
    engine.Add("a", Prompt(20), Greedy(50));
    engine.Add("b", Prompt(20, 1), Greedy(9));
    for (int i = 0; i < num_steps; ++i) engine.Step();
    engine.engine().AbortRequest("a");
    EXPECT_EQ(engine.Answer("a").finish_reason, FinishReason::kAbort);
    EXPECT_EQ(engine.model().steps().num_in_flight(), 1) << "it is b's as well";
    engine.engine().AuditPages();
    engine.Run();
    EXPECT_EQ(engine.Answer("b").token_ids, Oracle(engine.model().options(), Prompt(20, 1), 9));
    ExpectServesTheNext(engine);
  }
}

TEST(EngineRunAhead, NothingStaysInFlightWhenTheLastRequestIsAborted) {
  TestEngine engine(RunAhead());
  engine.Add("a", Prompt(20), Greedy(50, 2));
  for (int i = 0; i < 4; ++i) engine.Step();
  engine.engine().AbortRequest("a");
  EXPECT_EQ(engine.model().steps().num_in_flight(), 0);
  engine.ExpectIdle();
  ExpectServesTheNext(engine);
}

TEST(EngineRunAhead, AResetForgetsWhatIsInFlight) {
  TestEngine engine(RunAhead());
  engine.Add("a", Prompt(20), Greedy(50));
  for (int i = 0; i < 4; ++i) engine.Step();
  engine.engine().Reset();
  EXPECT_EQ(engine.Metric("kv_pages_free"), 256);
  EXPECT_EQ(engine.Metric("num_steps"), 0);
  ExpectServesTheNext(engine);
}

// ---- what steps in flight compute

TEST(EngineRunAhead, PenaltiesCountThePendingToken) {
  for (double temperature : {0.0, 1.0}) {
    TestEngineSetup setup;
    setup.model.vocab_size = 201;
    setup.model.history_window = 1;
    setup.model.peak = 3;
    GenerationConfig config = Sampled(40, 7, 3);
    config.temperature = temperature;
    config.frequency_penalty = 1.5;
    config.presence_penalty = 0.5;
    config.repetition_penalty = 1.3;
    config.logprobs = true;
    config.top_logprobs = 3;
    setup.model.run_ahead = false;
    TestEngine waiting(setup);
    TestEngine ahead(RunAhead(setup));
    for (TestEngine* engine : {&waiting, &ahead}) {
      engine->Add("a", Prompt(5), config);
      engine->Run();
    }
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(ahead.Answer("a", i).token_ids, waiting.Answer("a", i).token_ids);
      EXPECT_EQ(ahead.Answer("a", i).logprobs, waiting.Answer("a", i).logprobs);
    }
  }
}

TEST(EngineRunAhead, NothingOfARowThatFailedIsCached) {
  TestEngineSetup setup = RunAhead();
  setup.model.nan_token = 255;
  TestEngine engine(setup);
  Tokens prompt = Prompt(40);
  prompt.back() = 255;
  for (const char* id : {"bad", "again"}) {
    engine.Add(id, prompt, Greedy(5));
    engine.Run();
    EXPECT_EQ(engine.Answer(id).finish_reason, FinishReason::kError);
  }
  EXPECT_EQ(engine.Metric("prefix_cache_hits"), 0);
}

TEST(EngineRunAhead, TheCacheKeepsWhatAWaitingEngineKeeps) {
  for (bool run_ahead : {false, true}) {
    TestEngineSetup setup;
    setup.model.run_ahead = run_ahead;
    TestEngine engine(setup);
    const Tokens answer = Oracle(setup.model, Prompt(30), 10);
    GenerationConfig config = Greedy(50);
    config.stop_token_ids = {answer[9]};
    engine.Add("1", Prompt(30), config);
    engine.Run();
    Tokens longer = Prompt(30);
    longer.insert(longer.end(), answer.begin(), answer.end());
    longer.insert(longer.end(), {1, 2, 3});
    engine.Add("2", longer, Greedy(5));
    engine.Run();
    EXPECT_EQ(json::parse(*engine.History("2").usage)["extra"]["cached_tokens"], 39) << run_ahead;
    EXPECT_EQ(engine.Answer("2").token_ids, Oracle(setup.model, longer, 5));
  }
}

// ---- failures

TEST(EngineRunAhead, AFailureBehindAStepInFlightIsRepeated) {
  TestEngineSetup setup = RunAhead();
  setup.model.fail_at_forward = {3};
  setup.model.fail_at_sample = {4};
  TestEngine engine(setup);
  engine.Add("a", Prompt(5), Greedy(9));
  engine.Run();
  EXPECT_EQ(engine.Answer("a").token_ids, Oracle(setup.model, Prompt(5), 9));
}

TEST(EngineRunAhead, ALostStepEndsTheRequestsOfAllStepsInFlight) {
  for (int64_t k = 1; k <= 6; ++k) {
    TestEngineSetup setup = RunAhead({.prefill_chunk_size = 16});
    setup.model.fail_at_collect = {k};
    TestEngine engine(setup);
    engine.Add("a", Prompt(20), Greedy(20));
    engine.Add("b", Prompt(40, 1), Greedy(20));
    engine.Run();
    EXPECT_EQ(engine.Answer("a").finish_reason, FinishReason::kError);
    EXPECT_EQ(engine.History("a").error_message,
              "fake model: collect " + std::to_string(k) + " fails");
    const Tokens answer = Oracle(setup.model, Prompt(20), 20);
    const Tokens& tokens = engine.Answer("a").token_ids;
    EXPECT_EQ(tokens, Tokens(answer.begin(), answer.begin() + std::ssize(tokens)));
    ExpectServesTheNext(engine);
  }
}

TEST(EngineRunAhead, AnEngineMayBeDestroyedWithAStepInFlight) {
  TestEngine engine(RunAhead());
  engine.Add("a", Prompt(50, 1), Greedy(30));
  for (int i = 0; i < 3; ++i) engine.Step();
}

}  // namespace
}  // namespace mlc_native::testing
