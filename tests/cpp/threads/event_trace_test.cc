#include "observe/event_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/error.h"
#include "testing/allocations.h"
#include "testing/threads.h"

namespace mlc_native {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

json Dump(const EventTraceRecorder& recorder) { return json::parse(recorder.DumpJSON()); }

// "tid ph name" of every event, in order.
std::vector<std::string> Lines(const EventTraceRecorder& recorder) {
  std::vector<std::string> lines;
  for (const json& event : Dump(recorder)) {
    lines.push_back(event["tid"].get<std::string>() + ' ' + event["ph"].get<std::string>() + ' ' +
                    event["name"].get<std::string>());
  }
  return lines;
}

// In each row (tid) spans nest and are complete, and times ascend.
void ExpectNested(const json& events) {
  std::map<std::string, std::vector<std::string>> open;
  std::map<std::string, int64_t> last_ts;
  for (const json& event : events) {
    const std::string tid = event["tid"];
    std::vector<std::string>& spans = open[tid];
    if (event["ph"] == "B") spans.push_back(event["name"]);
    if (event["ph"] == "E") {
      ASSERT_FALSE(spans.empty()) << event;
      ASSERT_EQ(spans.back(), event["name"]) << event;
      spans.pop_back();
    }
    ASSERT_GE(event["ts"].get<int64_t>(), last_ts[tid]) << event;
    last_ts[tid] = event["ts"];
  }
  for (const auto& [tid, spans] : open) EXPECT_THAT(spans, IsEmpty()) << tid;
}

TEST(EventTraceRecorder, WritesChromeTraceEvents) {
  EventTraceRecorder recorder;
  recorder.AddEvent("r", "added");
  const json event = Dump(recorder).at(0);
  EXPECT_EQ(event["name"], "added (0)");
  EXPECT_EQ(event["ph"], "i");
  EXPECT_EQ(event["pid"], 1);
  EXPECT_EQ(event["tid"], "r");
  // Wall clock: after 2020, in microseconds.
  EXPECT_GT(event["ts"].get<int64_t>(), int64_t{1577836800} * 1'000'000);
}

TEST(EventTraceRecorder, NumbersEventsPerRequestAndName) {
  EventTraceRecorder recorder;
  for (int i = 0; i < 2; ++i) {
    recorder.AddEvent("a", "start decode");
    recorder.AddEvent("b", "start decode");
    recorder.AddEvent("a", "finish decode");
    recorder.AddEvent("b", "finish decode");
  }
  EXPECT_THAT(Lines(recorder),
              ElementsAre("a B decode (0)", "a E decode (0)", "a B decode (1)", "a E decode (1)",
                          "b B decode (0)", "b E decode (0)", "b B decode (1)", "b E decode (1)"));
}

TEST(EventTraceRecorder, BatchOfRequests) {
  EventTraceRecorder recorder;
  const std::vector<std::string_view> ids = {"a", "b"};
  recorder.AddEvent(ids, "start step");
  recorder.AddEvent(ids, "finish step");
  EXPECT_THAT(Lines(recorder),
              ElementsAre("a B step (0)", "a E step (0)", "b B step (0)", "b E step (0)"));
}

TEST(EventTraceRecorder, AnOpenSpanIsClosedInTheDumpOnly) {
  EventTraceRecorder recorder;
  recorder.AddEvent("a", "start prefill");
  EXPECT_THAT(Lines(recorder), ElementsAre("a B prefill (0)", "a E prefill (0)"));
  recorder.AddEvent("a", "finish prefill");
  EXPECT_THAT(Lines(recorder), ElementsAre("a B prefill (0)", "a E prefill (0)"));
}

TEST(EventTraceRecorder, AFinishWithoutStartIsLeftOut) {
  EventTraceRecorder recorder;
  recorder.AddEvent("a", "finish prefill");
  recorder.AddEvent("a", "start prefill");
  recorder.AddEvent("a", "finish prefill");
  EXPECT_THAT(Lines(recorder), ElementsAre("a B prefill (0)", "a E prefill (0)"));
}

TEST(EventTraceRecorder, OpenSpansAreClosedFromTheInside) {
  EventTraceRecorder recorder;
  for (const char* name : {"a", "b", "c", "d"})
    recorder.AddEvent("r", std::string("start ") + name);
  EXPECT_THAT(Lines(recorder), ElementsAre("r B a (0)", "r B b (0)", "r B c (0)", "r B d (0)",
                                           "r E d (0)", "r E c (0)", "r E b (0)", "r E a (0)"));
}

// The callback of a step on another thread while the next step runs.
TEST(EventTraceRecorder, SpansThatDoNotNestAreInRowsOfTheirOwn) {
  EventTraceRecorder recorder;
  for (const char* event : {"start decode", "start send", "finish decode", "sent", "start decode",
                            "finish send", "start send", "finish send", "finish decode"}) {
    recorder.AddEvent("r", event);
  }
  ExpectNested(Dump(recorder));
  const std::vector<std::string> lines = Lines(recorder);
  EXPECT_THAT(lines, Contains("r i sent (0)"));
  const bool decode_is_longer = std::ranges::find(lines, "r B decode (0)") != lines.end();
  const std::string other = decode_is_longer ? "send" : "decode";
  for (const char* number : {"(0)", "(1)"}) {
    EXPECT_THAT(lines, Contains("r (" + other + ") B " + other + ' ' + number));
    EXPECT_THAT(lines, Contains("r (" + other + ") E " + other + ' ' + number));
  }
  EXPECT_EQ(lines.size(), 9u);
}

TEST(EventTraceRecorder, SpansNestWhateverTheOrder) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    EventTraceRecorder recorder(20);
    for (int i = 0; i < 30; ++i) {
      const std::string kind = random() % 2 == 0 ? "start " : "finish ";
      recorder.AddEvent("r", kind + std::to_string(random() % 4));
    }
    ExpectNested(Dump(recorder));
  }
}

TEST(EventTraceRecorder, DropsTheOldestAndStaysBalanced) {
  EventTraceRecorder recorder(5);
  for (int i = 0; i < 100; ++i) {
    const std::string id = "request " + std::to_string(i / 3);
    recorder.AddEvent(id, "start step");
    recorder.AddEvent(id, "finish step");
  }
  EXPECT_EQ(recorder.num_dropped(), 195);
  EXPECT_THAT(Lines(recorder), ElementsAre("request 32 B step (0)", "request 32 E step (0)",
                                           "request 33 B step (0)", "request 33 E step (0)"));
}

TEST(EventTraceRecorder, ReusedIdsOfDroppedTextsDoNotMix) {
  EventTraceRecorder recorder(2);
  for (const char* id : {"a", "b", "c", "a", "d"}) recorder.AddEvent(id, std::string("at ") + id);
  EXPECT_THAT(Lines(recorder), ElementsAre("a i at a (0)", "d i at d (0)"));
}

TEST(EventTraceRecorder, RefusesABadCapacity) {
  EXPECT_THROW(EventTraceRecorder(0), InvalidConfig);
  EXPECT_THROW(EventTraceRecorder(-1), InvalidConfig);
  EXPECT_THROW(EventTraceRecorder(int64_t{1} << 40), InvalidConfig);
}

TEST(EventTraceRecorder, AnyBytesMakeValidJson) {
  EventTraceRecorder recorder;
  recorder.AddEvent("\xff\"\n", "start \x01");
  EXPECT_EQ(Dump(recorder).size(), 2u);
}

// What is traced must not fail because of the trace.
TEST(EventTraceRecorder, DropsEventsWithoutMemory) {
  bool failed = true;
  for (int64_t k = 1; failed; ++k) {
    SCOPED_TRACE(k);
    EventTraceRecorder recorder(8);
    int64_t countdown = k;
    {
      const testing::FailingAllocation failing(&countdown);
      for (const char* id : {"a", "b", "c", "d", "e"}) recorder.AddEvent(id, "at");
    }
    failed = countdown < 0;
    EXPECT_EQ(recorder.num_dropped(), failed ? 1 : 0);
    EXPECT_EQ(Dump(recorder).size(), failed ? 4u : 5u);
    for (int i = 0; i < 20; ++i) recorder.AddEvent("request " + std::to_string(i), "at");
    EXPECT_EQ(Dump(recorder).size(), 8u);
  }
}

TEST(EventTraceRecorder, DumpWhileRecording) {
  EventTraceRecorder recorder(1000);
  testing::Threads threads(4, [&recorder](int t) {
    for (int i = 0; i < 5000; ++i) {
      const std::string id = std::to_string(t) + '.' + std::to_string(i / 10);
      recorder.AddEvent(id, "start work");
      recorder.AddEvent(id, "finish work");
    }
  });
  for (int i = 0; i < 20; ++i) ExpectNested(Dump(recorder));
  threads.Join();
  ExpectNested(Dump(recorder));
  EXPECT_EQ(recorder.num_dropped(), 4 * 5000 * 2 - 1000);
}

}  // namespace
}  // namespace mlc_native
