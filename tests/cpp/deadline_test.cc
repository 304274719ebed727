// Deadlines: a request past its time ends with "timeout" at the next step, whatever state it is in,
// with the tokens it has and without its pages. Time is the test's own.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "request/deadline_queue.h"
#include "testing/test_engine.h"
#include "testing/virtual_clock.h"

namespace mlc_native::testing {
namespace {

using nlohmann::json;

GenerationConfig Timed(int64_t max_tokens, std::optional<double> timeout_s,
                       std::optional<double> queue_timeout_s = std::nullopt, int32_t n = 1) {
  GenerationConfig config = Greedy(max_tokens, n);
  config.timeout_s = timeout_s;
  config.queue_timeout_s = queue_timeout_s;
  return config;
}

// An engine whose forwards take one second each.
class DeadlineTest : public ::testing::Test {
 protected:
  TestEngine& Start(TestEngineSetup setup = {}) {
    setup.now = clock_.function();
    setup.model = Waited(setup.model);
    engine_.emplace(setup);
    engine_->model().set_on_forward([this](const ForwardBatch&) { clock_.Advance(1); });
    return *engine_;
  }
  int64_t PagesUsed() {
    return json::parse(engine_->engine().DebugCall("audit_pages"))["kv_pages_used"];
  }

  VirtualClock clock_;
  std::optional<TestEngine> engine_;
};

TEST_F(DeadlineTest, ARunningRequestKeepsTheTokensItHas) {
  TestEngine& engine = Start();
  engine.Add("timed", Prompt(10), Timed(100, 4.5));
  engine.Add("free", Prompt(10, 1), Greedy(20));
  for (int i = 0; i < 5; ++i) engine.Step();  // the fifth ends after the deadline
  EXPECT_FALSE(engine.History("timed").is_final());
  const int64_t num_forwards = engine.model().num_forwards();
  engine.Step();
  EXPECT_EQ(engine.Answer("timed").finish_reason, FinishReason::kTimeout);
  EXPECT_EQ(engine.Answer("timed").token_ids, Oracle({}, Prompt(10), 5));
  EXPECT_TRUE(engine.History("timed").is_final());
  EXPECT_EQ(engine.model().num_forwards(), num_forwards + 1);  // the other one goes on
  engine.Run();
  EXPECT_EQ(engine.Answer("free").token_ids, Oracle({}, Prompt(10, 1), 20));
  const json metrics = json::parse(engine.engine().JSONMetrics());
  EXPECT_EQ(metrics["num_timeouts"], 1);
  EXPECT_EQ(metrics["finished_requests"]["timeout"], 1);
}

TEST_F(DeadlineTest, TheEndIsDeliveredBeforeTheNextForward) {
  TestEngine& engine = Start();
  engine.Add("timed", Prompt(10), Timed(100, 0.5));
  engine.Add("free", Prompt(10, 1), Greedy(3));
  engine.Step();
  const int64_t num_forwards = engine.model().num_forwards();
  engine.on_outputs = [&](const std::vector<RequestStreamOutput>& outputs) {
    if (outputs.front().request_id != "timed") return;
    EXPECT_EQ(engine.model().num_forwards(), num_forwards);
  };
  engine.Step();
  EXPECT_TRUE(engine.History("timed").is_final());
  engine.Run();
}

TEST_F(DeadlineTest, TheLastRequestTimesOutAndTheEngineIsIdle) {
  TestEngine& engine = Start();
  engine.Add("timed", Prompt(10), Timed(100, 0.5));
  engine.Step();
  engine.Step();
  engine.ExpectIdle();
  EXPECT_EQ(engine.model().num_forwards(), 1);
}

TEST_F(DeadlineTest, WhileItWaitsBehindOthers) {
  TestEngine& engine = Start({.max_num_sequence = 1});
  engine.Add("first", Prompt(10), Greedy(10));
  engine.Add("queue", Prompt(10), Timed(5, std::nullopt, 2.5));
  engine.Add("total", Prompt(10), Timed(5, 3.5, 100));
  for (int i = 0; i < 4; ++i) engine.Step();
  EXPECT_TRUE(engine.History("queue").is_final());
  EXPECT_FALSE(engine.History("total").is_final());
  engine.Step();
  EXPECT_TRUE(engine.History("total").is_final());
  engine.Run();
  EXPECT_EQ(engine.Answer("queue").finish_reason, FinishReason::kTimeout);
  EXPECT_EQ(engine.Answer("total").finish_reason, FinishReason::kTimeout);
  EXPECT_TRUE(engine.Answer("queue").token_ids.empty());
  EXPECT_EQ(engine.Answer("first").token_ids.size(), 10u);
}

TEST_F(DeadlineTest, TheQueueTimeoutEndsWithTheStart) {
  TestEngine& engine = Start({.prefill_chunk_size = 16});
  engine.Add("started", Prompt(64), Timed(3, std::nullopt, 0.5));  // four chunks
  engine.Run();
  EXPECT_EQ(engine.Answer("started").finish_reason, FinishReason::kLength);
}

TEST_F(DeadlineTest, TheTotalDeadlineCountsAfterTheQueueTimeoutIsMet) {
  TestEngine& engine = Start();
  engine.Add("a", Prompt(10), Timed(100, 3.5, 0.5));
  engine.Run();
  EXPECT_EQ(engine.Answer("a").finish_reason, FinishReason::kTimeout);
  EXPECT_EQ(engine.Answer("a").token_ids.size(), 4u);
}

TEST_F(DeadlineTest, PartlyPrefilledGivesItsPagesBack) {
  TestEngine& engine = Start({.prefill_chunk_size = 16});
  engine.Add("timed", Prompt(100), Timed(5, 1.5));
  engine.Add("branches", Prompt(100), Timed(5, 1.5, std::nullopt, 3));
  engine.Step();
  engine.Step();
  EXPECT_GT(PagesUsed(), 0);
  engine.Step();
  engine.ExpectIdle();
  EXPECT_EQ(PagesUsed(), 0);
  EXPECT_EQ(engine.Answer("timed").finish_reason, FinishReason::kTimeout);
  EXPECT_EQ(engine.Answer("branches", 2).finish_reason, FinishReason::kTimeout);
}

TEST_F(DeadlineTest, WhilePreempted) {
  TestEngine& engine = Start({.max_num_sequence = 2, .num_pages = 4});
  engine.Add("first", Prompt(16), Greedy(40));
  engine.Add("victim", Prompt(16, 1), Timed(40, 25));
  int64_t preempted_at = 0;
  while (!engine.History("victim").is_final()) {
    engine.Step();
    const json metrics = json::parse(engine.engine().JSONMetrics());
    if (preempted_at == 0 && metrics["num_preemptions"] > 0) preempted_at = engine.num_steps();
  }
  EXPECT_GT(preempted_at, 0);
  EXPECT_LT(preempted_at, 25);
  EXPECT_LE(engine.num_steps(), 27);
  EXPECT_EQ(engine.Answer("victim").finish_reason, FinishReason::kTimeout);
  const auto tokens = engine.Answer("victim").token_ids;
  EXPECT_FALSE(tokens.empty());
  EXPECT_EQ(tokens, Oracle({}, Prompt(16, 1), std::ssize(tokens)));
  engine.Run();
}

TEST_F(DeadlineTest, WithheldTokensOfAStopStringAreDelivered) {
  auto table =
      std::make_shared<TokenTable>(std::vector<std::string>(256, "ab"), std::vector<bool>(), false);
  TestEngine& engine = Start({.token_table = table});
  GenerationConfig config = Timed(100, 2.5);
  config.stop_strs = {"ababababX"};
  engine.Add("a", Prompt(10), config);
  engine.Run();
  EXPECT_EQ(engine.Answer("a").finish_reason, FinishReason::kTimeout);
  EXPECT_EQ(engine.Answer("a").text, "ababab");
}

TEST_F(DeadlineTest, BranchesThatEndedKeepTheirReason) {
  FakeModelOptions model;
  model.peak = 0;  // every draw is by chance, so the branches differ
  TestEngine alone({.model = model});
  alone.Add("probe", Prompt(10), Sampled(3, 3, 2));
  alone.Run();
  TestEngine& engine = Start({.model = model});
  GenerationConfig config = Sampled(100, 3, 2);
  config.timeout_s = 6.5;
  config.stop_token_ids = {alone.Answer("probe", 0).token_ids[2]};
  engine.Add("a", Prompt(10), config);
  engine.Run();
  EXPECT_EQ(engine.Answer("a", 0).finish_reason, FinishReason::kStop);
  EXPECT_EQ(engine.Answer("a", 0).token_ids.size(), 2u);
  EXPECT_EQ(engine.Answer("a", 1).finish_reason, FinishReason::kTimeout);
  EXPECT_EQ(engine.Answer("a", 1).token_ids.size(), 7u);
  const json metrics = json::parse(engine.engine().JSONMetrics());
  EXPECT_EQ(metrics["finished_requests"]["timeout"], 1);  // the request as a whole
}

TEST_F(DeadlineTest, ARequestThatIsLateWhenItArrivesIsNotComputed) {
  TestEngine& engine = Start();
  std::vector<Data> inputs = {TokenData{Prompt(5)}};
  RequestPtr request = CreateRequest("late", inputs, Timed(5, 1), engine.engine().request_limits());
  engine.checker().Add(*request);
  const TimePoint submitted = clock_.now();
  clock_.Advance(2);  // a long step, while the request was on its way
  engine.engine().AddRequest(request, {.time = submitted, .slot = {}});
  engine.Step();
  engine.ExpectIdle();
  EXPECT_EQ(engine.Answer("late").finish_reason, FinishReason::kTimeout);
  EXPECT_EQ(engine.model().num_forwards(), 0);
}

TEST_F(DeadlineTest, TheEnginesDefaultsAreForRequestsThatGiveNone) {
  TestEngine& engine = Start({.max_num_sequence = 1, .timeout_s = 2.5, .queue_timeout_s = 1.5});
  engine.Add("default", Prompt(10), Greedy(100));
  engine.Add("waits", Prompt(10), Greedy(100));
  engine.Add("own", Prompt(10), Timed(6, 100, 100));
  engine.Run();
  EXPECT_EQ(engine.Answer("default").token_ids.size(), 3u);
  EXPECT_EQ(engine.Answer("default").finish_reason, FinishReason::kTimeout);
  EXPECT_TRUE(engine.Answer("waits").token_ids.empty());
  EXPECT_EQ(engine.Answer("own").finish_reason, FinishReason::kLength);
}

TEST_F(DeadlineTest, ManyDeadlinesEndInTheirOrder) {
  TestEngine& engine = Start({.max_num_sequence = 2});
  std::vector<std::string> order;
  engine.on_outputs = [&](const std::vector<RequestStreamOutput>& outputs) {
    for (const auto& output : outputs) {
      if (output.is_final()) order.push_back(output.request_id);
    }
  };
  engine.Add("runs", Prompt(10), Greedy(200));
  engine.Add("too", Prompt(10), Greedy(200));
  std::vector<std::string> expected;
  for (int i = 0; i < 100; ++i) expected.push_back(std::to_string(i));
  for (int i = 0; i < 100; ++i) {
    const int number = i * 37 % 100;
    // Two and two are due together: those are ended by arrival.
    engine.Add(std::to_string(number), Prompt(3), Timed(5, 0.5 + number));
  }
  for (int i = 0; i < 102; ++i) engine.Step();
  EXPECT_EQ(order, expected);
  engine.engine().AbortAllRequests();
  engine.ExpectIdle();
}

// A waiting request is work: the engine is never idle with a deadline ahead that only a step would
// notice.
TEST_F(DeadlineTest, ALiveRequestMakesEveryStepAForwardOrAnEnd) {
  TestEngine& engine = Start({.max_num_sequence = 2, .prefill_chunk_size = 8, .num_pages = 6});
  for (int i = 0; i < 30; ++i) {
    engine.Add(std::to_string(i), Prompt(1 + i * 7 % 40, i), Timed(1 + i % 20, 5 + i * 3));
  }
  while (!engine.engine().Empty()) {
    const int64_t num_forwards = engine.model().num_forwards();
    bool ended = false;
    engine.on_outputs = [&](const auto&) { ended = true; };
    engine.Step();
    EXPECT_TRUE(ended || engine.model().num_forwards() > num_forwards);
  }
  engine.ExpectIdle();
}

RequestState& Queue(DeadlineQueue* queue, RequestState* rstate, double queue_s, double total_s) {
  const auto at = [](double seconds) {
    return seconds < 0 ? kNoDeadline
                       : TimePoint() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(seconds));
  };
  rstate->queue_deadline = at(queue_s);
  rstate->deadline = at(total_s);
  queue->Add(*rstate);
  return *rstate;
}

TEST(DeadlineQueue, HoldsOnlyRequestsWithADeadline) {
  auto request = std::make_shared<Request>();
  request->prompt_token_ids = {1};
  DeadlineQueue queue;
  RequestState none(request, nullptr, false, TimePoint());
  Queue(&queue, &none, -1, -1);
  EXPECT_TRUE(queue.empty());
  RequestState both(request, nullptr, false, TimePoint());
  Queue(&queue, &both, 1, 2);
  EXPECT_EQ(queue.size(), 1);
  EXPECT_EQ(queue.PopExpired(TimePoint()), nullptr);
  queue.Started(both);
  both.started = true;
  EXPECT_EQ(queue.PopExpired(TimePoint() + std::chrono::seconds(1)), nullptr);
  queue.Remove(both);
  EXPECT_TRUE(queue.empty());
  queue.Remove(both);

  RequestState waits(request, nullptr, false, TimePoint());
  Queue(&queue, &waits, 1, -1);
  queue.Started(waits);
  waits.started = true;
  EXPECT_TRUE(queue.empty());
  queue.Remove(waits);
}

}  // namespace
}  // namespace mlc_native::testing
