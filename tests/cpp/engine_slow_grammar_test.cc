// Grammars that take long: no other request waits for them, answers are the same, and there is a
// limit.
// With matchers whose time is counted instead of measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "testing/fake_slow_calls.h"
#include "testing/letter_engine.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kGrammar[] = "ab*|abcabcabcab*";

class SlowGrammarTest : public ::testing::Test {
 protected:
  TestEngineSetup Setup() const {
    TestEngineSetup setup = LetterSetup();
    setup.grammar.on_work = FakeSlowCalls::Spend;
    setup.slow_calls = calls_;
    setup.grammar_step_budget_s = 0.005;
    return setup;
  }
  // Longer than the answer may be.
  static GenerationConfig Slow(GenerationConfig config) {
    config = Constrained(std::move(config), std::string("~") + kGrammar);
    config.debug_config.ignore_eos = true;
    return config;
  }
  SequenceHistory Alone(const GenerationConfig& config, int sequence = 0,
                        int64_t prompt_len = 5) const {
    TestEngine engine(LetterSetup());
    engine.Add("a", Prompt(prompt_len), config);
    engine.Run();
    return engine.Answer("a", sequence);
  }
  void RunWithCalls(TestEngine& engine) {
    for (int i = 0; !engine.engine().Empty(); ++i) {
      ASSERT_LT(i, kMaxSteps) << "the requests do not end";
      engine.Step();
      calls_->RunAll();
    }
    engine.ExpectIdle();
  }
  // Steps until nothing but a call could make the sequence advance.
  void StepUntilItSitsOut(TestEngine& engine) {
    for (int i = 0; calls_->num_waiting() == 0; ++i) {
      ASSERT_LT(i, kMaxSteps) << "no sequence sits out";
      engine.Step();
    }
    for (int i = 0; i < 3; ++i) engine.Step();
  }

  static constexpr int kMaxSteps = 10000;  // none of these tests needs a thousand

  const std::shared_ptr<FakeSlowCalls> calls_ = std::make_shared<FakeSlowCalls>();
};

TEST_F(SlowGrammarTest, OthersAdvanceWhileItSitsOut) {
  TestEngine engine(Setup());
  engine.Add("slow", Prompt(5), Slow(Sampled(40, 1)));
  StepUntilItSitsOut(engine);
  const size_t num_tokens = engine.Answer("slow").token_ids.size();
  engine.Add("plain", Prompt(6), Sampled(30, 2));
  engine.Add("quick", Prompt(7), Constrained(Sampled(30, 3), kGrammar));
  for (int i = 0; i < 40; ++i) engine.Step();
  EXPECT_TRUE(engine.Answer("plain").finish_reason.has_value());
  EXPECT_TRUE(engine.Answer("quick").finish_reason.has_value());
  EXPECT_EQ(engine.Answer("slow").token_ids.size(), num_tokens);
  RunWithCalls(engine);
  EXPECT_EQ(engine.Answer("slow").token_ids, Alone(Slow(Sampled(40, 1))).token_ids);
  EXPECT_EQ(engine.Answer("slow").finish_reason, FinishReason::kLength);
}

TEST_F(SlowGrammarTest, AnswersAreTheSame) {
  for (const bool run_ahead : {false, true}) {
    TestEngineSetup setup = Setup();
    setup.model.run_ahead = run_ahead;
    setup.num_pages = 9;  // sequences are preempted
    setup.prefill_chunk_size = 8;
    TestEngine engine(setup);
    const auto config = [](int i) { return Slow(Sampled(40, i, i == 0 ? 3 : 1)); };
    for (int i = 0; i < 4; ++i) engine.Add(std::to_string(i), Prompt(5 + i), config(i));
    engine.Add("plain", Prompt(5), Sampled(60, 9));
    RunWithCalls(engine);
    EXPECT_GT(calls_->num_started(), 0);
    EXPECT_GT(engine.Metric("num_preemptions"), 0);
    for (int i = 0; i < 4; ++i) {
      for (int k = 0; k < (i == 0 ? 3 : 1); ++k) {
        const SequenceHistory alone = Alone(config(i), k, 5 + i);
        EXPECT_EQ(engine.Answer(std::to_string(i), k).token_ids, alone.token_ids) << i;
        EXPECT_EQ(engine.Answer(std::to_string(i), k).finish_reason, alone.finish_reason) << i;
      }
    }
  }
}

// A token among many takes long with ordinary grammars, too.
TEST_F(SlowGrammarTest, AFewBudgetsMayBeExceededNowAndThen) {
  for (const bool often : {false, true}) {
    TestEngineSetup setup = Setup();
    int num_calls = 0;
    setup.grammar.on_work = [&](double) {
      if (++num_calls % (often ? 4 : 16) == 0)
        FakeSlowCalls::Spend(8 * setup.grammar_step_budget_s);
    };
    TestEngine engine(setup);
    const int64_t num_started = calls_->num_started();
    engine.Add("a", Prompt(5), Slow(Sampled(40, 1)));
    RunWithCalls(engine);
    EXPECT_EQ(calls_->num_started() > num_started, often);
  }
}

TEST_F(SlowGrammarTest, ItEndsWhereItsGrammarEnds) {
  TestEngine engine(Setup());
  engine.Add("slow", Prompt(5), Constrained(Greedy(40), "~abcdefghijklmnop"));
  RunWithCalls(engine);
  EXPECT_GT(calls_->num_started(), 0);
  ExpectStopped(engine, "slow", "abcdefghijklmnop");
}

TEST_F(SlowGrammarTest, BeyondTheLimitItEndsWithAnErrorAndKeepsItsText) {
  TestEngineSetup setup = Setup();
  setup.grammar_time_limit_s = 0.1;
  TestEngine engine(setup);
  engine.Add("slow", Prompt(5), Slow(Sampled(40, 1)));
  RunWithCalls(engine);
  const SequenceHistory alone = Alone(Slow(Sampled(40, 1)));
  const std::vector<int32_t>& tokens = engine.Answer("slow").token_ids;
  EXPECT_EQ(engine.Answer("slow").finish_reason, FinishReason::kError);
  EXPECT_THAT(engine.History("slow").error_message, HasSubstr("\"grammar_time_limit_s\" is 0.1"));
  EXPECT_GT(tokens.size(), 3u);
  EXPECT_EQ(tokens, std::vector(alone.token_ids.begin(), alone.token_ids.begin() + tokens.size()));
}

// The one that has most ends; with what is left the others go on.
TEST_F(SlowGrammarTest, StatesOfAllRequestsHaveALimit) {
  TestEngineSetup setup = Setup();
  setup.grammar_state_bytes = 4 << 20;  // a quarter of a second
  TestEngine engine(setup);
  engine.Add("long", Prompt(5), Slow(Sampled(60, 1)));
  engine.Add("short", Prompt(5), Slow(Sampled(8, 2)));
  RunWithCalls(engine);
  EXPECT_EQ(engine.Answer("long").finish_reason, FinishReason::kError);
  EXPECT_THAT(engine.History("long").error_message,
              HasSubstr("\"grammar_state_bytes\" is 4194304"));
  EXPECT_EQ(engine.Answer("short").finish_reason, FinishReason::kLength);
  EXPECT_EQ(engine.Answer("short").token_ids, Alone(Slow(Sampled(8, 2))).token_ids);
}

// As a call that never returns does.
TEST_F(SlowGrammarTest, ACallInProgressCounts) {
  for (const bool waits : {false, true}) {
    TestEngineSetup setup = Setup();
    setup.grammar_time_limit_s = 10;
    TestEngine engine(setup);
    engine.Add("slow", Prompt(5), Slow(Sampled(40, 1)));
    StepUntilItSitsOut(engine);
    EXPECT_FALSE(engine.Answer("slow").finish_reason.has_value());
    (waits ? calls_->progress.waiting_seconds : calls_->progress.cpu_seconds) = 11;
    engine.Step();
    EXPECT_EQ(engine.Answer("slow").finish_reason, FinishReason::kError);
    EXPECT_THAT(engine.History("slow").error_message, HasSubstr(waits ? "has waited 11 s" : "11"));
    engine.ExpectIdle();
    calls_->progress = {};
    calls_->RunAll();
  }
  EXPECT_EQ(calls_->num_abandoned(), 2);
}

TEST_F(SlowGrammarTest, AnAbortDoesNotWaitForTheCall) {
  TestEngine engine(Setup());
  engine.Add("slow", Prompt(5), Slow(Sampled(40, 1)));
  StepUntilItSitsOut(engine);
  engine.engine().AbortRequest("slow");
  EXPECT_EQ(engine.Answer("slow").finish_reason, FinishReason::kAbort);
  engine.ExpectIdle();
  calls_->RunAll();
  EXPECT_EQ(calls_->num_abandoned(), 1);
}

TEST_F(SlowGrammarTest, WhatACallThrowsEndsItsRequest) {
  TestEngineSetup setup = Setup();
  bool fails = false;
  setup.grammar.on_accept = [&](int32_t) {
    if (fails) throw std::runtime_error("grammar library");
  };
  TestEngine engine(setup);
  engine.Add("slow", Prompt(5), Slow(Sampled(40, 1)));
  engine.Add("plain", Prompt(6), Sampled(40, 2));
  StepUntilItSitsOut(engine);
  fails = true;
  RunWithCalls(engine);
  EXPECT_EQ(engine.Answer("slow").finish_reason, FinishReason::kError);
  EXPECT_THAT(engine.History("slow").error_message, HasSubstr("grammar library"));
  EXPECT_EQ(engine.Answer("plain").finish_reason, FinishReason::kLength);
}

TEST_F(SlowGrammarTest, DraftsStop) {
  TestEngineSetup setup = Setup();
  setup.speculative_mode = SpeculativeMode::kNGram;
  setup.spec_draft_length = 4;
  TestEngine engine(setup);
  engine.Add("slow", Prompt(5), Slow(Sampled(60, 1)));
  RunWithCalls(engine);
  EXPECT_EQ(engine.Answer("slow").token_ids, Alone(Slow(Sampled(60, 1))).token_ids);
}

}  // namespace
}  // namespace mlc_native::testing
