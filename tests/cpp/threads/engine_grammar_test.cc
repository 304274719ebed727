// Constrained answers: masks, ends, settings that meet a grammar, failures. With a fake grammar
// library; the real one is tested in tests/cpp/grammar.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

#include "testing/letter_engine.h"
#include "testing/test_engine.h"
#include "testing/threaded_harness.h"

namespace mlc_native::testing {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// The answer of an engine of its own.
SequenceHistory Alone(const TestEngineSetup& setup, const GenerationConfig& config,
                      int64_t prompt_len = 5) {
  TestEngine engine(setup);
  engine.Add("a", Prompt(prompt_len), config);
  engine.Run();
  return engine.Answer("a");
}

// ---- what is drawn

TEST(EngineGrammarTest, AnswersAreAllowedInEverySamplingMode) {
  GenerationConfig top_k = Sampled(20, 0), top_p = top_k, min_p = top_k, penalties = top_k,
                   bias = top_k;
  top_k.top_k = 2;
  top_p.top_p = 0.5;
  min_p.min_p = 0.5;
  penalties.frequency_penalty = 2;
  penalties.repetition_penalty = 1e30;
  bias.logit_bias = {{'z' - 'a', 100}, {'c' - 'a', -100}, {'d' - 'a', -100}};
  for (GenerationConfig config :
       {Greedy(20), Sampled(20, 0), top_k, top_p, min_p, penalties, bias}) {
    for (config.seed = 1; *config.seed < 40; ++*config.seed) {
      const SequenceHistory answer = Alone(LetterSetup(), Constrained(config, "cat|cow|dodo"));
      EXPECT_THAT(answer.text, AnyOf("cat", "cow", "dodo"));
      EXPECT_EQ(answer.finish_reason, FinishReason::kStop);
    }
  }
}

TEST(EngineGrammarTest, SeededAnswersReachEveryChoice) {
  GenerationConfig config = Sampled(20, 0);
  config.response_format = {ResponseFormatType::kChoice, "", {"cat", "cow", "dodo"}};
  std::set<std::string> answers;
  for (config.seed = 1; *config.seed < 60; ++*config.seed) {
    answers.insert(Alone(LetterSetup(), config).text);
  }
  EXPECT_EQ(answers, (std::set<std::string>{"cat", "cow", "dodo"}));
}

TEST(EngineGrammarTest, LogprobsAreTheModels) {
  TestEngineSetup setup = LetterSetup();
  setup.model.script = {5, 6, 7};  // "fgh", which the grammar forbids
  GenerationConfig config = Constrained(Greedy(20), "b");
  config.logprobs = true;
  config.top_logprobs = 1;
  const SequenceHistory answer = Alone(setup, config);
  EXPECT_EQ(answer.text, "b");
  ASSERT_EQ(answer.logprobs.size(), 1u);
  const json logprob = json::parse(answer.logprobs[0]);
  const double log_sum = std::log(std::exp(3.0) + 255);
  EXPECT_NEAR(logprob["logprob"].get<double>(), -log_sum, 1e-5);
  EXPECT_EQ(logprob["top_logprobs"][0]["token"], "f");
  EXPECT_NEAR(logprob["top_logprobs"][0]["logprob"].get<double>(), 3 - log_sum, 1e-5);
}

// ---- the same whatever happens around it

TEST(EngineGrammarTest, AnswersDoNotDependOnBatchChunkingOrPreemption) {
  const std::string grammar = "ab*|cat|ba*";
  TestEngineSetup crowded = LetterSetup();
  crowded.num_pages = 8;
  crowded.prefill_chunk_size = 8;
  for (PrefillMode mode : {PrefillMode::kHybrid, PrefillMode::kChunked}) {
    crowded.prefill_mode = mode;
    TestEngine engine(crowded);
    const auto config = [&grammar](int i) {
      GenerationConfig own = i % 4 == 3 ? Sampled(40, i) : Constrained(Sampled(40, i), grammar);
      own.debug_config.ignore_eos = true;  // long answers
      return own;
    };
    for (int i = 0; i < 8; ++i) engine.Add(std::to_string(i), Prompt(5 + i), config(i));
    engine.Run();
    EXPECT_GT(json::parse(engine.engine().JSONMetrics())["num_preemptions"], 0);
    for (int i = 0; i < 8; ++i) {
      const SequenceHistory alone = Alone(LetterSetup(), config(i), 5 + i);
      EXPECT_EQ(engine.Answer(std::to_string(i)).token_ids, alone.token_ids) << i;
      EXPECT_EQ(engine.Answer(std::to_string(i)).finish_reason, alone.finish_reason) << i;
    }
  }
}

TEST(EngineGrammarTest, SequencesOfARequestAreConstrainedEach) {
  TestEngine engine(LetterSetup());
  engine.Add("a", Prompt(5), Constrained(Sampled(20, 7, 6), "cat|cow|dodo|emu"));
  engine.Run();
  std::set<std::string> answers;
  for (int i = 0; i < 6; ++i) {
    answers.insert(engine.Answer("a", i).text);
    EXPECT_THAT(engine.Answer("a", i).text, AnyOf("cat", "cow", "dodo", "emu"));
    EXPECT_EQ(engine.Answer("a", i).finish_reason, FinishReason::kStop);
  }
  EXPECT_GT(answers.size(), 1u);
}

TEST(EngineGrammarTest, AStepThatIsRepeatedKeepsTheState) {
  TestEngineSetup setup = LetterSetup();
  const GenerationConfig config = Constrained(Sampled(20, 3), "abcdefgh|abdefghi");
  const SequenceHistory alone = Alone(setup, config);
  setup.model.poison_token = 250;
  TestEngine engine(setup);
  engine.Add("a", Prompt(5), config);
  engine.Step();
  engine.Step();
  engine.Add("poisoned", {1, 250, 2}, Greedy(5));
  engine.Run();
  EXPECT_EQ(engine.Answer("poisoned").finish_reason, FinishReason::kError);
  EXPECT_EQ(engine.Answer("a").token_ids, alone.token_ids);
  EXPECT_EQ(engine.Answer("a").finish_reason, FinishReason::kStop);
}

// ---- the end

TEST(EngineGrammarTest, ACompleteAnswerCostsNoForwardMore) {
  TestEngine engine(LetterSetup());
  engine.Add("a", Prompt(5), Constrained(Greedy(-1), "dog"));
  engine.Run();
  ExpectStopped(engine, "a", "dog");
  EXPECT_EQ(engine.model().num_forwards(), 3);  // prefill and two decodes
}

TEST(EngineGrammarTest, AnAnswerThatMayGoOnEndsWithTheModelsEos) {
  TestEngineSetup setup = LetterSetup();
  setup.model.script = {0, 0, kEos};
  TestEngine engine(setup);
  engine.Add("a", Prompt(5), Constrained(Greedy(20), "a*"));
  engine.Run();
  ExpectStopped(engine, "a", "aa");
}

TEST(EngineGrammarTest, EosIsForbiddenInTheMiddle) {
  TestEngineSetup setup = LetterSetup();
  setup.model.script = {kEos};
  TestEngine engine(setup);
  engine.Add("a", Prompt(5), Constrained(Greedy(20), "dog"));
  engine.Run();
  ExpectStopped(engine, "a", "dog");
}

TEST(EngineGrammarTest, MaxTokensMayCutTheAnswer) {
  TestEngine engine(LetterSetup());
  engine.Add("cut", Prompt(5), Constrained(Greedy(2), "dog"));
  engine.Add("fits", Prompt(6), Constrained(Greedy(3), "dog"));
  engine.Add("none", Prompt(7), Constrained(Greedy(0), "dog"));
  engine.Run();
  EXPECT_EQ(engine.Answer("cut").text, "do");
  EXPECT_EQ(engine.Answer("cut").finish_reason, FinishReason::kLength);
  ExpectStopped(engine, "fits", "dog");
  EXPECT_EQ(engine.Answer("none").finish_reason, FinishReason::kLength);
}

TEST(EngineGrammarTest, WithIgnoreEosOnlyTheGrammarEndsTheAnswer) {
  TestEngineSetup setup = LetterSetup();
  setup.model.script = {kEos};
  for (const std::string& format : {std::string("da*"), std::string("*")}) {
    GenerationConfig config = Constrained(Greedy(6), format);
    config.debug_config.ignore_eos = true;
    const SequenceHistory answer = Alone(setup, config);
    EXPECT_EQ(answer.token_ids.size(), 6u) << format;
    EXPECT_EQ(answer.finish_reason, FinishReason::kLength);
    EXPECT_EQ(std::count(answer.token_ids.begin(), answer.token_ids.end(), kEos), 0);
  }
  GenerationConfig config = Constrained(Greedy(6), "dog");
  config.debug_config.ignore_eos = true;
  EXPECT_EQ(Alone(setup, config).finish_reason, FinishReason::kStop);
}

TEST(EngineGrammarTest, AModelWithoutEosEndsWithTheGrammar) {
  TestEngineSetup setup = LetterSetup();
  setup.eos_token_ids = {};
  TestEngine engine(setup);
  engine.Add("a", Prompt(5), Constrained(Greedy(20), "do|dog"));
  engine.Run();
  ExpectStopped(engine, "a", "dog");
}

TEST(EngineGrammarTest, StopTokensOfARequestAreAllowedWhereTheAnswerMayEnd) {
  TestEngineSetup setup = LetterSetup();
  setup.model.script = {kEnd};
  GenerationConfig config = Constrained(Greedy(20), "dog|doggo");
  config.stop_token_ids = {kEnd};
  const SequenceHistory answer = Alone(setup, config);
  EXPECT_EQ(answer.text, "dog");
  EXPECT_EQ(answer.finish_reason, FinishReason::kStop);

  config.debug_config.ignore_eos = true;  // means the model's own
  EXPECT_EQ(Alone(setup, config).text, "dog");
}

TEST(EngineGrammarTest, AStopTokenWithTextEndsTheAnswerAnywhere) {
  GenerationConfig config = Constrained(Greedy(20), "dog");
  config.stop_token_ids = {'o' - 'a'};
  const SequenceHistory answer = Alone(LetterSetup(), config);
  EXPECT_EQ(answer.text, "d");
  EXPECT_EQ(answer.finish_reason, FinishReason::kStop);
}

TEST(EngineGrammarTest, StopStringsWork) {
  GenerationConfig config = Constrained(Greedy(20), "catalog");
  config.stop_strs = {"talo"};
  const SequenceHistory answer = Alone(LetterSetup(), config);
  EXPECT_EQ(answer.text, "ca");
  EXPECT_EQ(answer.finish_reason, FinishReason::kStop);
  config.stop_strs = {"logs"};  // withheld to the end, then delivered
  EXPECT_EQ(Alone(LetterSetup(), config).text, "catalog");
}

TEST(EngineGrammarTest, AGrammarOfTheEmptyAnswerAloneEndsAtOnce) {
  TestEngine engine(LetterSetup());
  GenerationConfig config = Sampled(20, 1, 2);
  config.response_format = {ResponseFormatType::kChoice, "", {""}};
  engine.Add("a", Prompt(5), config);
  engine.ExpectIdle();
  EXPECT_EQ(engine.Answer("a", 1).finish_reason, FinishReason::kStop);
  EXPECT_EQ(engine.Answer("a", 1).text, "");
  EXPECT_EQ(engine.model().num_forwards(), 0);
}

// ---- failures end one request

TEST(EngineGrammarTest, NothingAllowedIsAnErrorOfThatRequest) {
  TestEngine engine(LetterSetup());
  engine.Add("stuck", Prompt(5), Constrained(Greedy(20), "aQ"));  // no token spells Q
  engine.Add("fine", Prompt(6), Constrained(Greedy(20), "dog"));
  engine.Run();
  EXPECT_EQ(engine.Answer("stuck").finish_reason, FinishReason::kError);
  EXPECT_THAT(engine.History("stuck").error_message, HasSubstr("no token can be sampled"));
  ExpectStopped(engine, "fine", "dog");
}

TEST(EngineGrammarTest, WhatTheLibraryThrowsEndsOneRequest) {
  for (const bool in_fill : {true, false}) {
    TestEngineSetup setup = LetterSetup();
    std::atomic<int> num_calls = 0;
    const auto fail_once = [&num_calls] {
      if (++num_calls == 2) throw std::runtime_error("grammar library");
    };
    if (in_fill) {
      setup.grammar.on_fill = fail_once;
    } else {
      setup.grammar.on_accept = [&](int32_t) { fail_once(); };
    }
    TestEngine engine(setup);
    engine.Add("a", Prompt(5), Constrained(Greedy(20), "dog"));
    engine.Add("b", Prompt(6), Constrained(Greedy(20), "dog"));
    engine.Add("c", Prompt(7), Greedy(4));
    engine.Run();
    const bool a_failed = engine.Answer("a").finish_reason == FinishReason::kError;
    const std::string failed = a_failed ? "a" : "b";
    EXPECT_EQ(engine.Answer(failed).finish_reason, FinishReason::kError) << in_fill;
    EXPECT_THAT(engine.History(failed).error_message, HasSubstr("grammar library"));
    ExpectStopped(engine, a_failed ? "b" : "a", "dog");
    EXPECT_EQ(engine.Answer("c").token_ids, Oracle(setup.model, Prompt(7), 4));
  }
}

TEST(EngineGrammarTest, CountsInTheMetrics) {
  TestEngine engine(LetterSetup());
  engine.Add("a", Prompt(3), Constrained(Greedy(5), "dog"));
  engine.Add("b", Prompt(3), Constrained(Greedy(5), "dog"));
  engine.Add("c", Prompt(3), Constrained(Greedy(5), "cat"));
  engine.Add("d", Prompt(3), Greedy(5));
  engine.Run();
  const json metrics = json::parse(engine.engine().JSONMetrics());
  EXPECT_EQ(metrics["num_constrained_requests"], 3);
  EXPECT_EQ(metrics["grammars_cached"], 2);
  EXPECT_EQ(metrics["grammar_cache_bytes"], 200);
  EXPECT_GT(metrics["grammar_mask_time_sum"], 0.0);
}

TEST(EngineGrammarTest, MasksAreFilledWhileTheModelComputes) {
  TestEngineSetup setup = LetterSetup();
  Gate filling;  // the forward does not return before a mask is being filled
  filling.Open();
  setup.grammar.on_fill = [&filling] { filling.Pass(); };
  TestEngine engine(setup);
  engine.model().set_on_forward([&filling](const ForwardBatch&) { filling.AwaitArrival(); });
  engine.Add("a", Prompt(3), Constrained(Greedy(5), "dog"));
  engine.Run();
  ExpectStopped(engine, "a", "dog");
}

}  // namespace
}  // namespace mlc_native::testing
