// The queue limit: exact over all threads and whatever becomes of a request.
#include "request/queue_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/error.h"
#include "testing/test_engine.h"
#include "testing/threaded_harness.h"
#include "testing/threads.h"

namespace mlc_native::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(QueueLimit, SlotsGiveThemselvesBack) {
  const auto queue = std::make_shared<QueueLimit>();
  queue->set_limit(2);
  QueueLimit::Slot first = QueueLimit::Enter(queue);
  {
    const QueueLimit::Slot second = QueueLimit::Enter(queue);
    EXPECT_EQ(queue->length(), 2);
    try {
      QueueLimit::Enter(queue);
      ADD_FAILURE() << "entered a full queue";
    } catch (const QueueFull& full) {
      EXPECT_EQ(full.queue_length(), 2);
      EXPECT_EQ(full.max_queue_length(), 2);
      EXPECT_EQ(full.field(), "max_queue_length");
      EXPECT_THAT(full.what(), HasSubstr("2 requests wait"));
    }
  }
  EXPECT_EQ(queue->length(), 1);
  QueueLimit::Slot moved = std::move(first);
  EXPECT_EQ(queue->length(), 1);
  moved = QueueLimit::Slot();
  moved.Release();
  EXPECT_EQ(queue->length(), 0);
  EXPECT_EQ(queue->num_refused(), 1);
}

TEST(QueueLimit, IsNeverExceededByManyThreads) {
  const auto queue = std::make_shared<QueueLimit>();
  queue->set_limit(5);
  std::atomic<int64_t> longest = 0;
  testing::Threads threads(8, [&](int) {
    for (int i = 0; i < 2000; ++i) {
      try {
        const QueueLimit::Slot slot = QueueLimit::Enter(queue);
        const int64_t length = queue->length();
        int64_t seen = longest;
        while (length > seen && !longest.compare_exchange_weak(seen, length)) continue;
      } catch (const QueueFull&) {
        std::this_thread::yield();
      }
    }
  });
  threads.Join();
  EXPECT_LE(longest, 5);
  EXPECT_EQ(queue->length(), 0);
}

// ---- the engine

TEST(EngineQueue, CountsWhatHasNotStarted) {
  TestEngine engine({.max_num_sequence = 1, .max_queue_length = 2});
  engine.Add("runs", Prompt(5), Greedy(20));
  engine.Step();
  engine.Add("a", Prompt(5), Greedy(2));
  engine.Add("b", Prompt(5), Greedy(2));
  const auto gauge = [&](const char* name) {
    return json::parse(engine.engine().JSONMetrics())[name].get<int>();
  };
  EXPECT_EQ(gauge("queue_length"), 2);
  EXPECT_THROW(engine.Add("c", Prompt(5), Greedy(2)), QueueFull);
  EXPECT_EQ(gauge("num_queue_full"), 1);
  engine.engine().AbortRequest("a");
  EXPECT_EQ(gauge("queue_length"), 1);
  engine.Add("c", Prompt(5), Greedy(2));
  engine.Run();
  EXPECT_EQ(gauge("queue_length"), 0);
  engine.engine().Reset();
  EXPECT_EQ(gauge("num_queue_full"), 0);
}

TEST(EngineQueue, PreemptedRequestsHaveTheirPlace) {
  TestEngine engine({.num_pages = 4, .max_queue_length = 2});
  engine.Add("a", Prompt(16), Greedy(40));
  engine.Add("b", Prompt(16, 1), Greedy(40));
  int64_t num_preempted = 0;
  while (!engine.engine().Empty()) {
    engine.Step();
    const json metrics = json::parse(engine.engine().JSONMetrics());
    EXPECT_EQ(metrics["queue_length"], 0);
    num_preempted += metrics["num_waiting_requests"] > 0 ? 1 : 0;
  }
  EXPECT_GT(num_preempted, 0);
}

TEST(EngineQueue, RefusedRequestsTakeNoPlace) {
  TestEngine engine({.max_queue_length = 2});
  engine.Add("a", Prompt(5), Greedy(5));
  for (int i = 0; i < 5; ++i) {
    std::vector<Data> inputs = {TokenData{Prompt(5)}};
    const auto again = CreateRequest("a", inputs, Greedy(5), engine.engine().request_limits());
    EXPECT_THROW(engine.engine().AddRequest(again), InvalidRequest);
  }
  engine.Add("b", Prompt(5), Greedy(5));
  engine.Run();
}

// ---- across threads

class ThreadedQueue : public ::testing::Test {
 protected:
  explicit ThreadedQueue(int64_t limit = 3)
      : h_(TestEngineSetup{.max_num_sequence = 1, .max_queue_length = limit}) {
    h_.on_forward = [this](const ForwardBatch&) { forward_.Pass(); };
    h_.StartAndLoad();
  }
  ~ThreadedQueue() override { forward_.Open(); }
  // True when it was accepted.
  bool Offer(const std::string& id) {
    const RequestPtr request = h_.engine().CreateRequest(id, {TokenData{Prompt(5)}}, Greedy(2));
    try {
      h_.AddRequest(request);
      return true;
    } catch (const QueueFull&) {
      return false;
    }
  }

  Gate forward_;
  ThreadedHarness h_;
};

TEST_F(ThreadedQueue, IsRefusedWhileTheEngineIsBusy) {
  ASSERT_TRUE(Offer("runs"));
  forward_.AwaitArrival();  // it has started, so it does not wait; its step goes on
  EXPECT_TRUE(Offer("a"));  // these are in the command channel, which is not read now
  EXPECT_TRUE(Offer("b"));
  EXPECT_TRUE(Offer("c"));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(Offer("refused " + std::to_string(i)));
  forward_.Open();
  for (const char* id : {"runs", "a", "b", "c"}) {
    EXPECT_EQ(h_.AwaitReason(id), FinishReason::kLength);
  }
  EXPECT_EQ(json::parse(h_.engine().JSONMetrics())["queue_length"], 0);
  EXPECT_EQ(json::parse(h_.engine().JSONMetrics())["num_queue_full"], 100);
}

TEST_F(ThreadedQueue, MetricsCanBeAskedForOfAFullQueue) {
  ASSERT_TRUE(Offer("runs"));
  forward_.AwaitArrival();
  for (const char* id : {"a", "b", "c"}) EXPECT_TRUE(Offer(id));
  GenerationConfig config;
  config.debug_config.special_request = "query_engine_metrics";
  h_.Add("metrics", Prompt(1), config);
  forward_.Open();
  EXPECT_TRUE(h_.Await("metrics").is_final());
  h_.AwaitAll();
}

TEST_F(ThreadedQueue, AcceptsAsManyAsThereArePlacesFromManyThreads) {
  ASSERT_TRUE(Offer("runs"));
  forward_.AwaitArrival();
  std::atomic<int> num_accepted = 0;
  testing::Threads threads(8, [&](int t) {
    for (int i = 0; i < 50; ++i) num_accepted += Offer(std::to_string(t) + '.' + std::to_string(i));
  });
  threads.Join();
  EXPECT_EQ(num_accepted, 3);
  forward_.Open();
  h_.AwaitAll();
}

TEST_F(ThreadedQueue, AbortAndReloadMakeRoom) {
  ASSERT_TRUE(Offer("runs"));
  forward_.AwaitArrival();
  for (const char* id : {"a", "b", "c"}) EXPECT_TRUE(Offer(id));
  EXPECT_FALSE(Offer("d"));
  h_.engine().AbortRequest("b");
  forward_.Open();
  h_.Load();
  h_.AwaitAll();
  for (const char* id : {"e", "f", "g"}) EXPECT_TRUE(Offer(id));
  h_.AwaitAll();
}

}  // namespace
}  // namespace mlc_native::testing
