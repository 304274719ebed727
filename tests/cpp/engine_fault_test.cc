// The engine when things go wrong: aborts at every phase, a model, an allocation or a callback that
// fails at every possible moment. Always: one final output per request, all pages back, the next
// request works.
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

#include "testing/test_engine.h"

namespace mlc_native::testing {
namespace {

using nlohmann::json;

void ExpectServesTheNext(TestEngine& engine, const FakeModelOptions& model) {
  engine.Add("next", Prompt(33, 9), Greedy(9));
  engine.Run();
  EXPECT_EQ(engine.Answer("next").token_ids, Oracle(model, Prompt(33, 9), 9));
}

// A scenario with chunks, branches, copy-on-write, preemption and a late arrival.
struct Scenario {
  TestEngineSetup setup{.prefill_chunk_size = 24, .num_pages = 8};

  void Play(TestEngine& engine) const {
    engine.Add("a", Prompt(50, 1), Greedy(30));
    engine.Add("b", Prompt(20, 2), Greedy(20, 3));
    for (int i = 0; i < 4; ++i) engine.Step();
    engine.Add("c", Prompt(9, 3), Greedy(25));
    engine.Run();
  }
};

// A request that ended with an error says why; the others answer as if nothing had happened.
void ExpectRightOrError(const TestEngine& engine, const FakeModelOptions& model,
                        const std::string& id, std::vector<int32_t> prompt, int64_t max_tokens) {
  const RequestHistory& history = engine.History(id);
  const std::vector<int32_t> expected = Oracle(model, std::move(prompt), max_tokens);
  bool failed = false;
  for (const SequenceHistory& sequence : history.sequences) {
    failed = failed || sequence.finish_reason == FinishReason::kError;
    ASSERT_LE(sequence.token_ids.size(), expected.size());
    EXPECT_TRUE(std::equal(sequence.token_ids.begin(), sequence.token_ids.end(), expected.begin()))
        << id << ": wrong tokens";
    if (sequence.finish_reason == FinishReason::kLength) {
      EXPECT_EQ(sequence.token_ids.size(), expected.size());
    }
  }
  EXPECT_EQ(failed, !history.error_message.empty());
}

void ExpectAllRightOrError(const TestEngine& engine, const FakeModelOptions& model) {
  ExpectRightOrError(engine, model, "a", Prompt(50, 1), 30);
  ExpectRightOrError(engine, model, "b", Prompt(20, 2), 20);
  ExpectRightOrError(engine, model, "c", Prompt(9, 3), 25);
}

int64_t NumErrors(TestEngine& engine) {
  return json::parse(engine.engine().JSONMetrics())["num_errors"];
}

TEST(EngineFault, TheScenarioHasItAll) {
  const Scenario scenario;
  TestEngine engine(scenario.setup);
  scenario.Play(engine);
  EXPECT_GT(json::parse(engine.engine().JSONMetrics())["num_preemptions"], 0);
  EXPECT_GT(engine.model().num_copies(), 0);
  EXPECT_EQ(NumErrors(engine), 0);
  ExpectAllRightOrError(engine, scenario.setup.model);
}

// Plays the scenario once for each of the `count(model)` events that it has without faults; `plant`
// makes the k-th of them fail.
template <typename Count, typename Plant>
void FailAtEvery(Count count, Plant plant) {
  const Scenario scenario;
  TestEngine intact(scenario.setup);
  scenario.Play(intact);
  for (int64_t k = 1; k <= count(intact.model()); ++k) {
    SCOPED_TRACE(k);
    TestEngine engine(scenario.setup);
    plant(engine.model(), k);
    scenario.Play(engine);
    ExpectAllRightOrError(engine, scenario.setup.model);
    // Behind a step in flight it is repeated.
    EXPECT_TRUE(NumErrors(engine) > 0 || scenario.setup.model.run_ahead);
    ExpectServesTheNext(engine, scenario.setup.model);
  }
}

TEST(EngineFault, TheModelThrowsAtEveryForward) {
  FailAtEvery([](const FakeModel& model) { return model.num_forwards(); },
              [](FakeModel& model, int64_t k) { model.options().fail_at_forward = {k}; });
}

TEST(EngineFault, AnAllocationFailsAtEveryForward) {
  FailAtEvery([](const FakeModel& model) { return model.num_forwards(); },
              [](FakeModel& model, int64_t k) {
                model.set_on_forward([&model, k](const ForwardBatch&) {
                  if (model.num_forwards() == k) throw std::bad_alloc();
                });
              });
}

TEST(EngineFault, EveryPageCopyFails) {
  FailAtEvery([](const FakeModel& model) { return model.num_copies(); },
              [](FakeModel& model, int64_t k) { model.options().fail_copy_at = {k}; });
}

TEST(EngineFault, AModelThatAlwaysThrowsEndsEveryRequest) {
  Scenario scenario;
  scenario.setup.model.fail_always = true;
  TestEngine engine(scenario.setup);
  scenario.Play(engine);
  EXPECT_EQ(NumErrors(engine), 3);
}

TEST(EngineFault, WhatIsNoExceptionIsHandledToo) {
  TestEngineSetup setup;
  TestEngine engine(setup);
  engine.model().set_on_forward([](const ForwardBatch&) { throw 42; });
  engine.Add("a", Prompt(5), Greedy(3));
  engine.Run();
  EXPECT_EQ(engine.Answer("a").finish_reason, FinishReason::kError);
}

// One request of several is at fault, at every moment of its life.
TEST(EngineFault, ASequenceErrorEndsOnlyItsRequest) {
  for (PrefillMode mode : {PrefillMode::kChunked, PrefillMode::kHybrid}) {
    for (int64_t position : {0, 10, 30, 49, 50, 51, 60}) {
      SCOPED_TRACE(position);
      constexpr int32_t kPoison = 255;
      TestEngineSetup setup{.prefill_chunk_size = 16, .prefill_mode = mode};
      setup.model.poison_token = kPoison;
      setup.model.eos_token_id = kPoison;  // never comes out of the hash
      std::vector<int32_t> prompt = Prompt(50, 1);
      if (position < 50) prompt[position] = kPoison;
      if (position >= 50) setup.model.poison_token = Oracle(setup.model, prompt, 20)[position - 50];
      TestEngine engine(setup);
      engine.Add("before", Prompt(20, 200), Greedy(1));
      engine.Add("bad", prompt, Greedy(20, 2));
      engine.Add("good", Prompt(1, 3), Greedy(2));
      engine.Run();
      EXPECT_EQ(engine.Answer("bad").finish_reason, FinishReason::kError);
      EXPECT_EQ(engine.Answer("bad", 1).finish_reason, FinishReason::kError);
      EXPECT_EQ(engine.History("bad").error_message, "fake model: poisoned sequence");
      EXPECT_EQ(NumErrors(engine), 1);
      EXPECT_EQ(engine.Answer("good").token_ids, Oracle(setup.model, Prompt(1, 3), 2));
    }
  }
}

TEST(EngineFault, NanLogitsEndOnlyTheirRequest) {
  for (int32_t n : {1, 3}) {
    TestEngineSetup setup;
    setup.model.nan_token = Oracle(setup.model, Prompt(20, 1), 5)[3];
    TestEngine engine(setup);
    engine.Add("bad", Prompt(20, 1), Greedy(20, n));
    engine.Add("good", Prompt(20, 4), Greedy(3));
    engine.Run();
    EXPECT_EQ(engine.Answer("bad", n - 1).finish_reason, FinishReason::kError);
    EXPECT_EQ(engine.Answer("bad", n - 1).token_ids.size(), 4u);
    EXPECT_FALSE(engine.History("bad").error_message.empty());
    EXPECT_EQ(engine.Answer("good").token_ids, Oracle(setup.model, Prompt(20, 4), 3));
    EXPECT_EQ(NumErrors(engine), 1);
  }
}

TEST(EngineFault, NanLogitsOfThePromptEndOnlyTheirRequest) {
  for (int32_t n : {1, 3}) {
    TestEngineSetup setup;
    setup.model.nan_token = 255;
    TestEngine engine(setup);
    engine.Add("bad", {1, 2, 255}, Greedy(20, n));
    engine.Add("good", Prompt(20, 4), Greedy(3));
    engine.Run();
    EXPECT_EQ(engine.Answer("bad").finish_reason, FinishReason::kError);
    EXPECT_EQ(engine.Answer("good").token_ids, Oracle(setup.model, Prompt(20, 4), 3));
  }
}

TEST(EngineFault, ACallbackThatThrowsAtAnyCallLosesNothing) {
  const Scenario scenario;
  for (int k = 1; k <= 60; ++k) {
    SCOPED_TRACE(k);
    TestEngine engine(scenario.setup);
    int calls = 0;
    engine.on_outputs = [&](const std::vector<RequestStreamOutput>&) {
      if (++calls == k) throw std::runtime_error("callback");
    };
    engine.Add("a", Prompt(50, 1), Greedy(30));
    engine.Add("b", Prompt(20, 2), Greedy(20, 3));
    engine.Add("c", Prompt(9, 3), Greedy(25));
    int thrown = 0;
    while (!engine.engine().Empty()) {
      try {
        engine.engine().Step();
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "callback");
        ++thrown;
      }
      engine.engine().AuditPages();
    }
    engine.ExpectIdle();
    EXPECT_EQ(thrown, k <= calls ? 1 : 0);
    ExpectAllRightOrError(engine, scenario.setup.model);
    EXPECT_EQ(NumErrors(engine), 0);
  }
}

TEST(EngineFault, TheCallbackMayUseTheEngine) {
  TestEngineSetup setup;
  TestEngine engine(setup);
  engine.on_outputs = [&](const std::vector<RequestStreamOutput>& outputs) {
    for (const RequestStreamOutput& output : outputs) {
      if (output.request_id == "a" && output.is_final()) engine.Add("b", Prompt(5), Greedy(4));
      if (output.request_id == "b" && !output.is_final()) engine.engine().AbortRequest("c");
    }
  };
  engine.Add("a", Prompt(20), Greedy(3));
  engine.Add("c", Prompt(20), Greedy(100));
  engine.Run();
  EXPECT_EQ(engine.Answer("b").token_ids, Oracle(setup.model, Prompt(5), 4));
  EXPECT_EQ(engine.Answer("c").finish_reason, FinishReason::kAbort);
}

TEST(EngineFault, AbortOfAnUnknownIdIsIgnored) {
  TestEngine engine({});
  engine.engine().AbortRequest("nobody");
  engine.Add("a", Prompt(5), Greedy(1));
  engine.Run();
  engine.engine().AbortRequest("a");
  engine.ExpectIdle();
}

// Every request of the scenario is aborted before every step: waiting, partly prefilled, running,
// with some branches preempted, finished.
TEST(EngineFault, AbortAtEveryPhase) {
  const Scenario scenario;
  TestEngine intact(scenario.setup);
  scenario.Play(intact);
  for (const std::string victim : {"a", "b", "c"}) {
    for (int64_t abort_at = 0; abort_at <= intact.num_steps(); ++abort_at) {
      SCOPED_TRACE(victim + " before step " + std::to_string(abort_at));
      TestEngine engine(scenario.setup);
      engine.Add("a", Prompt(50, 1), Greedy(30));
      engine.Add("b", Prompt(20, 2), Greedy(20, 3));
      engine.Add("c", Prompt(9, 3), Greedy(25));
      for (int64_t step = 0; step < abort_at; ++step) engine.Step();
      const bool was_live = !engine.History(victim).is_final();
      engine.engine().AbortRequest(victim);
      engine.engine().AuditPages();
      EXPECT_TRUE(engine.History(victim).is_final()) << "the final output follows at once";
      engine.Run();
      EXPECT_EQ(json::parse(engine.engine().JSONMetrics())["num_aborts"], was_live ? 1 : 0);
      ExpectAllRightOrError(engine, scenario.setup.model);
    }
  }
}

TEST(EngineFault, FailAllRequestsEndsEveryPhase) {
  const Scenario scenario;
  for (int steps : {0, 1, 3, 6, 12}) {
    TestEngine engine(scenario.setup);
    engine.Add("a", Prompt(50, 1), Greedy(30));
    engine.Add("b", Prompt(20, 2), Greedy(20, 3));
    for (int i = 0; i < steps; ++i) engine.Step();
    engine.engine().FailAllRequests("the roof is on fire");
    engine.ExpectIdle();
    EXPECT_EQ(engine.History("b").error_message, "the roof is on fire");
    ExpectServesTheNext(engine, scenario.setup.model);
  }
}

TEST(EngineFault, AnEngineMayBeDestroyedWithRequestsRunning) {
  const Scenario scenario;
  TestEngine engine(scenario.setup);
  engine.Add("a", Prompt(50, 1), Greedy(30));
  engine.Add("b", Prompt(20, 2), Greedy(20, 3));
  for (int i = 0; i < 6; ++i) engine.Step();
}

}  // namespace
}  // namespace mlc_native::testing
