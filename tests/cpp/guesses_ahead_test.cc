// Steps that follow guesses in flight (step/token_blocks.h): the answers are those of an engine
// without guesses that waits for each step, whatever happens meanwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "testing/speculation.h"

namespace mlc_native::testing {
namespace {

using nlohmann::json;

TestEngineSetup Waiting() {
  TestEngineSetup setup = SpeculationSetup({.run_ahead = false});
  setup.model.history_window = 2;  // what a fake draft head guesses, often not what is drawn
  setup.model.gives_states = true;
  return setup;
}

struct Kind {
  bool has_head = false;
  int64_t length = 3;
  int64_t chunk = 64;
  int64_t num_pages = 256;
};

TestEngineSetup Ahead(const Kind& kind) {
  TestEngineSetup setup = Waiting();
  setup.model.run_ahead = true;
  setup.prefill_chunk_size = kind.chunk;
  setup.num_pages = kind.num_pages;
  setup.speculative_mode = kind.has_head ? SpeculativeMode::kEagle3 : SpeculativeMode::kSmallDraft;
  setup.spec_draft_length = kind.length;
  setup.draft_model = setup.model;
  setup.draft_model->is_draft_head = kind.has_head;
  return setup;
}

// All that a step may follow guesses of.
std::vector<GenerationConfig> Configs() {
  std::vector<GenerationConfig> configs;
  const auto add = [&](const std::function<void(GenerationConfig&)>& change) {
    configs.push_back(Sampled(60, static_cast<int64_t>(configs.size())));
    change(configs.back());
  };
  add([](GenerationConfig& c) { c.temperature = 0; });
  add([](GenerationConfig&) {});
  add([](GenerationConfig& c) { c.top_p = 0.9, c.top_k = 5, c.min_p = 0.01; });
  add([](GenerationConfig& c) { c.logit_bias = {{3, 2.0}, {7, -3.0}}; });
  add([](GenerationConfig& c) { c.stop_token_ids = {8, 17}; });
  add([](GenerationConfig& c) { c.stop_strs = {"abc", "hh", "dga"}; });
  add([](GenerationConfig& c) { c.logprobs = true, c.top_logprobs = 3; });
  add([](GenerationConfig& c) { c.debug_config.ignore_eos = true, c.max_tokens = 200; });
  add([](GenerationConfig& c) { c.n = 3, c.debug_config.ignore_eos = true; });
  add([](GenerationConfig& c) { c.speculative = false, c.debug_config.ignore_eos = true; });
  for (int64_t max_tokens = 1; max_tokens <= 9; ++max_tokens) {
    add([&](GenerationConfig& c) { c.temperature = 0, c.max_tokens = max_tokens; });
  }
  return configs;
}

void ExpectNothingEarly(TestEngine& engine) {
  EXPECT_EQ(engine.model().steps().num_early_reads(), 0);
  EXPECT_EQ(engine.draft_model().steps().num_early_reads(), 0);
  EXPECT_EQ(engine.draft_model().num_wrong_states(), 0);
  EXPECT_EQ(SpecDecode(engine)["num_failures"], 0);
}

class GuessesAhead : public ::testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Kinds, GuessesAhead,
                         ::testing::Values(Kind{false, 1}, Kind{false, 3}, Kind{false, 10},
                                           Kind{false, 4, 16}, Kind{false, 5, 64, 12},
                                           Kind{true, 1}, Kind{true, 3}, Kind{true, 10},
                                           Kind{true, 4, 16}, Kind{true, 5, 64, 12}));

TEST_P(GuessesAhead, AnswersAreThoseWithoutGuesses) {
  TestEngine expected(Waiting());
  TestEngine here(Ahead(GetParam()));
  for (TestEngine* engine : {&expected, &here}) {
    AddAll(*engine, Configs());
    engine->Run();
  }
  ExpectSameAnswers(here, expected);
  ExpectNothingEarly(here);
  const json spec = SpecDecode(here);
  EXPECT_GT(spec["num_steps_ahead"], 3);
  EXPECT_GT(spec["num_accepted_tokens"], 5);
  EXPECT_GT(spec["num_draft_tokens"], spec["num_accepted_tokens"]);
}

// A sequence alone, in the order of calls: the next step is submitted before the one with guesses
// is collected, except for the first ones and near the end.
TEST_P(GuessesAhead, AStepIsSubmittedBeforeTheGuessesBeforeItAreCollected) {
  TestEngine engine(Ahead(GetParam()));
  std::string calls;
  engine.model().set_on_forward([&](const ForwardBatch&) { calls += 'F'; });
  engine.model().steps().set_on_collect([&] { calls += 'C'; });
  const GenerationConfig config = Endless(Greedy(100));
  engine.Add("a", LetterPrompt(1), config);
  engine.Run();
  EXPECT_EQ(engine.Answer("a").token_ids, Oracle(engine.model().options(), LetterPrompt(1), 100));
  const json spec = SpecDecode(engine);
  // All guesses of a greedy answer are right.
  EXPECT_EQ(spec["num_accepted_tokens"], spec["num_draft_tokens"]);
  EXPECT_NE(calls.find("FCFCFCFC"), std::string::npos) << calls;
  const int64_t steps_ahead = spec["num_steps_ahead"];
  EXPECT_GT(steps_ahead, 60 / (GetParam().length + 1)) << calls;
  ExpectNothingEarly(engine);
}

// A head that was not asked behind a step with guesses goes on from the states that are kept.
TEST(GuessesAheadOfAHead, AHeadKeepsUp) {
  TestEngineSetup setup = Ahead({.has_head = true, .length = 4});
  TestEngine here(setup);
  const GenerationConfig config = Endless(Sampled(90, 3));
  here.Add("a", LetterPrompt(1), config);
  here.Run();
  const json spec = SpecDecode(here);
  EXPECT_GT(spec["num_draft_tokens"], spec["num_accepted_tokens"]);
  EXPECT_GT(spec["num_steps_ahead"], 15);
  EXPECT_EQ(here.draft_model().num_misaligned(), 0);
  ExpectNothingEarly(here);
}

// Requests of all kinds end while a step behind their guesses is in flight.
TEST_P(GuessesAhead, RequestsMayEndWhileTheirGuessesAreInFlight) {
  for (int64_t after = 2; after < 14; ++after) {
    TestEngine expected(Waiting());
    TestEngine here(Ahead(GetParam()));
    for (TestEngine* engine : {&expected, &here}) {
      for (int64_t i = 0; i < 3; ++i) {
        engine->Add(std::to_string(i), LetterPrompt(i), Endless(Sampled(40, i)));
      }
    }
    expected.Run();
    for (int64_t i = 0; i < after; ++i) here.Step();
    here.engine().AbortRequest("1");
    const std::vector<int32_t> begun = here.Answer("1").token_ids;
    here.Add("next", LetterPrompt(4), Sampled(20, 9));
    here.Run();
    expected.Add("next", LetterPrompt(4), Sampled(20, 9));
    expected.Run();
    for (const char* id : {"0", "2", "next"}) ExpectSameAnswer(here, expected, id);
    const std::vector<int32_t>& whole = expected.Answer("1").token_ids;
    ASSERT_LE(begun.size(), whole.size());
    EXPECT_TRUE(std::equal(begun.begin(), begun.end(), whole.begin()));
    ExpectNothingEarly(here);
  }
}

// Answers that are as long as a sequence may become, which is seldom where a block of guesses ends.
TEST_P(GuessesAhead, AnswersEndWhereASequenceMayNotGrow) {
  for (int64_t longest = 50; longest < 61; ++longest) {
    const auto limited = [=](TestEngineSetup setup) {
      setup.max_single_sequence_length = setup.model.context_window_size = longest;
      return setup;
    };
    TestEngine expected(limited(Waiting()));
    TestEngine here(limited(Ahead(GetParam())));
    for (TestEngine* engine : {&expected, &here}) {
      for (int64_t i = 0; i < 3; ++i) {
        // Guesses are nearly all right without randomness, and often wrong with it.
        const GenerationConfig config = i == 0 ? Greedy(200) : Sampled(200, i);
        engine->Add(std::to_string(i), LetterPrompt(i), Endless(config));
      }
      engine->Run();
    }
    ExpectSameAnswers(here, expected);
    EXPECT_GT(SpecDecode(here)["num_steps_ahead"], 2);
    EXPECT_EQ(SpecDecode(here)["num_failures"], 0);  // a step that is too long is repeated
  }
}

// Requests whose next token depends on the text wait, and the others of their steps with them.
TEST_P(GuessesAhead, WhatDependsOnTheTextIsWaitedFor) {
  TestEngine here(Ahead(GetParam()));
  GenerationConfig config = Endless(Sampled(30, 1));
  here.Add("free", LetterPrompt(1), config);
  config.frequency_penalty = 0.5;
  here.Add("penalties", LetterPrompt(2), config);
  here.Run();
  EXPECT_EQ(SpecDecode(here)["num_steps_ahead"], 0);
  config.frequency_penalty = 0;
  here.Add("alone", LetterPrompt(1), config);
  here.Run();
  EXPECT_GT(SpecDecode(here)["num_steps_ahead"], 0);
  EXPECT_EQ(here.Answer("alone").token_ids, here.Answer("free").token_ids);
}

// A drafter that fails costs guesses and nothing else, and so does a failure of the target.
TEST_P(GuessesAhead, FailuresCostOnlyGuesses) {
  for (const bool of_drafter : {true, false}) {
    TestEngineSetup setup = Ahead(GetParam());
    // A step that fails is repeated.
    (of_drafter ? *setup.draft_model : setup.model).fail_at_forward = {9, 17, 30};
    TestEngine expected(Waiting());
    TestEngine here(setup);
    for (TestEngine* engine : {&expected, &here}) {
      for (int64_t i = 0; i < 3; ++i) {
        engine->Add(std::to_string(i), LetterPrompt(i), Endless(Sampled(70, i)));
      }
      engine->Run();
    }
    for (const char* id : {"0", "1", "2"}) ExpectSameAnswer(here, expected, id);
    EXPECT_GT(SpecDecode(here)["num_steps_ahead"], 3);
    EXPECT_EQ(here.model().steps().num_early_reads(), 0);
    EXPECT_EQ(here.draft_model().num_misaligned(), 0);
  }
}

// Guesses in flight hold pages for a while; a prompt is admitted as without them.
TEST_P(GuessesAhead, PromptsDoNotLackPagesBecauseOfThem) {
  Kind kind = GetParam();
  kind.length = std::max<int64_t>(kind.length, 3);
  TestEngineSetup setup = Ahead(kind);
  setup.num_pages = 4;
  setup.max_single_sequence_length = 40;
  setup.prefix_cache_mode = PrefixCacheMode::kDisable;
  setup.draft_model->script = {30};  // wrong
  TestEngine here(setup);
  const std::vector<int32_t> prompts[] = {LetterPrompt(1), LetterPrompt(4)};
  here.Add("a", prompts[0], Endless(Greedy(20)));
  while (json::parse(here.engine().DebugCall("audit_pages"))["kv_pages_used"] < 2) here.Step();
  // One page is enough for what is known of it, three are for the prompt and the next page of "a".
  ASSERT_LE(prompts[0].size() + here.Answer("a").token_ids.size(), kKvPageSize);
  here.Add("b", prompts[1], Endless(Greedy(12)));
  size_t num_rows = 0;
  here.model().set_on_forward([&](const ForwardBatch& b) { num_rows = b.token_ids.size(); });
  here.Step();
  EXPECT_GT(num_rows, GetParam().chunk == 64 ? prompts[1].size() : 15);
  here.Run();
  EXPECT_GT(SpecDecode(here)["num_steps_ahead"], 0);
  EXPECT_EQ(here.Metric("num_preemptions"), 0);
  const FakeModelOptions& model = here.model().options();
  EXPECT_EQ(here.Answer("a").token_ids, Oracle(model, prompts[0], 20));
  EXPECT_EQ(here.Answer("b").token_ids, Oracle(model, prompts[1], 12));
}

}  // namespace
}  // namespace mlc_native::testing
