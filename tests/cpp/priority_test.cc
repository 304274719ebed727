// Priorities: the place of a new request in the queue, the victim of a preemption, and the two
// bounds: requests of one priority never overtake each other, and no request is overtaken without
// end.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine_state.h"
#include "request/scheduler.h"
#include "support/error.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {
namespace {

using nlohmann::json;
using enum RequestPriority;

GenerationConfig Prioritized(RequestPriority priority, int64_t max_tokens) {
  GenerationConfig config = Greedy(max_tokens);
  config.priority = priority;
  return config;
}

// A waiting queue without an engine. Requests are named by their priority's first letter and a
// number.
class WaitingQueue {
 public:
  RequestState& Add(const std::string& id) {
    auto request = std::make_shared<Request>();
    request->id = id;
    request->prompt_token_ids = {1};
    request->generation_cfg.priority = id[0] == 'h' ? kHigh : id[0] == 'n' ? kNormal : kLow;
    return estate_->Admit(std::make_unique<RequestState>(request, nullptr, false, TimePoint()));
  }
  // The head starts, is computed and ends.
  std::string Pop() {
    RequestState& head = estate_->GetRequestState(estate_->waiting_queue.front()->id);
    const std::string id = head.request->id;
    estate_->MarkStarted(head, TimePoint());
    std::vector<const Request*> finished = {head.request.get()};
    estate_->Erase(&finished);
    return id;
  }
  std::string Order() const {
    std::string order;
    for (const RequestPtr& request : estate_->waiting_queue) {
      order += (order.empty() ? "" : " ") + request->id;
    }
    return order;
  }
  bool empty() const { return estate_->waiting_queue.empty(); }
  EngineState& estate() { return estate_; }

 private:
  EngineState estate_;
};

TEST(WaitingQueue, OnePriorityIsFifo) {
  WaitingQueue queue;
  for (const char* id : {"n0", "n1", "n2", "n3"}) queue.Add(id);
  EXPECT_EQ(queue.Order(), "n0 n1 n2 n3");
}

TEST(WaitingQueue, HigherGoesFirst) {
  WaitingQueue queue;
  for (const char* id : {"l0", "n0", "l1", "h0", "n1", "h1"}) queue.Add(id);
  EXPECT_EQ(queue.Order(), "h0 h1 n0 n1 l0 l1");
}

TEST(WaitingQueue, EachLetsInABoundedNumber) {
  WaitingQueue queue;
  queue.Add("l0");
  queue.Add("l1");
  for (int i = 0; i < 2 * EngineStateObj::kMaxOvertakes + 2; ++i)
    queue.Add("h" + std::to_string(i));
  EXPECT_EQ(queue.Order(), "h0 h1 h2 h3 h4 h5 h6 h7 l0 h8 h9 h10 h11 h12 h13 h14 h15 l1 h16 h17");
}

TEST(WaitingQueue, WhatHasStartedIsNotOvertaken) {
  WaitingQueue queue;
  queue.estate()->MarkStarted(queue.Add("l0"), TimePoint());
  queue.Add("l1");
  queue.Add("h0");
  EXPECT_EQ(queue.Order(), "l0 h0 l1");
}

TEST(WaitingQueue, PreemptedRequestsWaitInFrontByPriority) {
  WaitingQueue queue;
  const auto preempted = [&queue](const std::string& id) {
    RequestState& rstate = queue.Add(id);
    queue.estate()->MarkStarted(rstate, TimePoint());
    std::erase(queue.estate()->waiting_queue, rstate.request);
    rstate.in_waiting_queue = false;
    queue.estate()->PushWaitingFront(rstate);
  };
  queue.Add("h0");
  preempted("l1");
  EXPECT_EQ(queue.Order(), "l1 h0");
  preempted("h2");
  preempted("n3");
  preempted("n4");
  EXPECT_EQ(queue.Order(), "h2 n4 n3 l1 h0");
  queue.Add("h5");
  EXPECT_EQ(queue.Order(), "h2 n4 n3 l1 h0 h5");
}

// How often something came between a request and its start, for arrivals and starts in any order.
class WaitingQueueBounds : public ::testing::TestWithParam<int> {};

TEST_P(WaitingQueueBounds, FifoInAClassAndBoundedOvertaking) {
  std::mt19937 random(GetParam());
  WaitingQueue queue;
  struct Waiting {
    int64_t before = 0;     // waiting when it came
    int64_t overtaken = 0;  // by later ones
  };
  std::map<std::string, Waiting> waiting;
  std::vector<std::string> arrivals;
  std::map<char, int> last_started;
  const auto start_one = [&] {
    const std::string id = queue.Pop();
    const int number = std::stoi(id.substr(1));
    const auto last = last_started.emplace(id[0], -1).first;
    EXPECT_LT(last->second, number) << "overtaken in its own class";
    last->second = number;
    waiting.erase(id);
    for (auto& [other, state] : waiting) {
      if (std::stoi(other.substr(1)) < number) ++state.overtaken;
    }
    for (const auto& [other, state] : waiting) {
      const int64_t direct = EngineStateObj::kMaxOvertakes * (state.before + 1);
      const int64_t bound = other[0] == 'h'   ? 0
                            : other[0] == 'n' ? direct
                                              : direct * (1 + EngineStateObj::kMaxOvertakes);
      ASSERT_LE(state.overtaken, bound) << other << ", " << state.before << " before it";
    }
  };
  // Mostly high arrivals and as many as can start: what would starve the others without a bound.
  const int percent_high = std::uniform_int_distribution<int>(0, 95)(random);
  const int percent_arrivals = std::uniform_int_distribution<int>(40, 60)(random);
  for (int i = 0; i < 3000; ++i) {
    const auto percent = [&random] { return std::uniform_int_distribution<int>(0, 99)(random); };
    if (queue.empty() || percent() < percent_arrivals) {
      const char kind = percent() < percent_high ? 'h' : percent() < 50 ? 'n' : 'l';
      const std::string id = kind + std::to_string(i);
      waiting.emplace(id, Waiting{.before = std::ssize(waiting)});
      queue.Add(id);
    } else {
      start_one();
    }
  }
  while (!queue.empty()) start_one();
}

INSTANTIATE_TEST_SUITE_P(Seeds, WaitingQueueBounds, ::testing::Range(0, 40));

// ---- in the engine

TEST(Priority, IsReadByName) {
  EXPECT_EQ(ParsePriority("high"), kHigh);
  EXPECT_EQ(ParsePriority("normal"), kNormal);
  EXPECT_EQ(ParsePriority("low"), kLow);
  EXPECT_THROW(ParsePriority("urgent"), InvalidRequest);
}

TEST(Priority, DecidesTheOrderOfService) {
  TestEngine engine({.max_num_sequence = 1});
  std::vector<std::string> order;
  engine.on_outputs = [&](const std::vector<RequestStreamOutput>& outputs) {
    for (const auto& output : outputs) {
      if (output.is_final()) order.push_back(output.request_id);
    }
  };
  engine.Add("running", Prompt(5), Prioritized(kLow, 3));
  engine.Step();
  engine.Add("low", Prompt(5), Prioritized(kLow, 3));
  engine.Add("normal", Prompt(5), Prioritized(kNormal, 3));
  engine.Add("high", Prompt(5), Prioritized(kHigh, 3));
  engine.Run();
  EXPECT_EQ(order, (std::vector<std::string>{"running", "high", "normal", "low"}));
}

TEST(Priority, DoesNotChangeTokens) {
  TestEngine engine({.max_num_sequence = 2, .prefill_chunk_size = 8, .num_pages = 8});
  for (int i = 0; i < 12; ++i) {
    engine.Add(std::to_string(i), Prompt(5 + i * 5, i),
               Prioritized(static_cast<RequestPriority>(i % 3), 20));
    engine.Step();
  }
  engine.Run();
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(engine.Answer(std::to_string(i)).token_ids, Oracle({}, Prompt(5 + i * 5, i), 20));
  }
}

TEST(Priority, TheLowestIsPreemptedFirst) {
  TestEngine engine({.num_pages = 6});
  engine.Add("low", Prompt(16, 0), Prioritized(kLow, 24));
  engine.Step();  // it runs first, so it is not the last of those that run
  engine.Add("high", Prompt(16, 1), Prioritized(kHigh, 24));
  engine.Add("normal", Prompt(16, 2), Prioritized(kNormal, 24));
  std::vector<std::string> waited;
  while (!engine.engine().Empty()) {
    engine.Step();
    const json state = json::parse(engine.engine().DebugCall("dump_state"));
    for (const json& id : state["waiting_queue"]) {
      if (engine.num_steps() > 2) waited.push_back(id);
    }
  }
  ASSERT_FALSE(waited.empty());
  for (const std::string& id : waited) EXPECT_EQ(id, "low");
  for (int i = 0; const char* id : {"low", "high", "normal"}) {
    EXPECT_EQ(engine.Answer(id).token_ids, Oracle({}, Prompt(16, i++), 24));
  }
}

}  // namespace
}  // namespace mlc_native::testing
