// Speculation changes when tokens come and never which: answers with drafts of every kind are those
// without, and drafts take nothing that anything else needs.
#include "testing/speculation.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "draft/drafter.h"

namespace mlc_native::testing {
namespace {

using nlohmann::json;

std::vector<GenerationConfig> Configs() {
  std::vector<GenerationConfig> configs;
  const auto add = [&](const std::function<void(GenerationConfig&)>& change) {
    configs.push_back(Sampled(60, static_cast<int64_t>(configs.size())));
    change(configs.back());
  };
  const auto constrain = [](GenerationConfig& c, const char* mode, const char* text) {
    c.response_format.type = ResponseFormatType::kRegex;
    c.response_format.text = text;
    c.debug_config.grammar_execution_mode = mode;
  };
  add([](GenerationConfig& c) { c.temperature = 0; });
  add([](GenerationConfig&) {});
  add([](GenerationConfig& c) { c.top_p = 0.9, c.top_k = 5, c.min_p = 0.01; });
  add([](GenerationConfig& c) {
    c.frequency_penalty = 0.8, c.presence_penalty = 0.4, c.repetition_penalty = 1.2;
  });
  add([](GenerationConfig& c) { c.logit_bias = {{3, 2.0}, {7, -3.0}}; });
  add([](GenerationConfig& c) { c.bad_words = {{1, 2}, {5}, {3, 9, 4}, {12, 20}, {6, 6}}; });
  add([](GenerationConfig& c) { c.no_repeat_ngram_size = 3; });
  add([](GenerationConfig& c) { c.min_tokens = 25, c.stop_token_ids = {4, 9, 13}; });
  add([](GenerationConfig& c) { c.stop_token_ids = {8, 17}; });
  add([](GenerationConfig& c) { c.stop_strs = {"abc", "hh", "dga"}; });
  add([](GenerationConfig& c) { c.stop_strs = {"fe"}, c.include_stop_str_in_output = true; });
  add([](GenerationConfig& c) { c.logprobs = true, c.top_logprobs = 3; });
  add([](GenerationConfig& c) { c.debug_config.ignore_eos = true; });
  add([](GenerationConfig& c) { c.n = 3; });
  for (int64_t max_tokens = 1; max_tokens <= 4; ++max_tokens) {
    add([&](GenerationConfig& c) { c.temperature = 0, c.max_tokens = max_tokens; });
  }
  add([&](GenerationConfig& c) { constrain(c, "constraint", "abababcab|abababababababc|a*"); });
  add([&](GenerationConfig& c) { constrain(c, "constraint", "*"), c.stop_token_ids = {4, 9}; });
  add([&](GenerationConfig& c) {
    constrain(c, "jump_forward", "aaaaabcabc|aaab|ababab");
    c.temperature = 2;
  });
  return configs;
}

class SpeculationEquality : public ::testing::TestWithParam<DraftSettings> {};

TEST_P(SpeculationEquality, AnswersAreThoseWithoutDrafts) {
  TestEngine expected(SpeculationSetup({}));
  AddAll(expected, Configs());
  expected.Run();
  TestEngine here(SpeculationSetup(GetParam()));
  AddAll(here, Configs());
  here.Run();
  ExpectSameAnswers(here, expected);
  const json metrics = SpecDecode(here);
  EXPECT_GT(metrics["num_accepted_tokens"], 5);
  EXPECT_GT(metrics["num_draft_tokens"], metrics["num_accepted_tokens"]);
}

INSTANTIATE_TEST_SUITE_P(
    Drafts, SpeculationEquality,
    ::testing::Values(DraftSettings{Drafts::kLookup, 1}, DraftSettings{Drafts::kLookup, 3},
                      DraftSettings{Drafts::kLookup, 10}, DraftSettings{Drafts::kLookup, 0},
                      DraftSettings{Drafts::kLookup, 10, 16},
                      DraftSettings{Drafts::kLookup, 5, 64, 40}, DraftSettings{Drafts::kSuffix, 0},
                      DraftSettings{Drafts::kSuffix, 10, 16}, DraftSettings{Drafts::kModel, 0},
                      DraftSettings{Drafts::kModel, 1}, DraftSettings{Drafts::kModel, 10},
                      DraftSettings{Drafts::kModel, 4, 32}, DraftSettings{Drafts::kModel, 5, 64, 9},
                      DraftSettings{Drafts::kModel, 5, 64, 256, true},
                      DraftSettings{Drafts::kAdversarial, 0},
                      DraftSettings{Drafts::kAdversarial, 10, 32},
                      DraftSettings{Drafts::kAdversarial, 4, 64, 9},
                      DraftSettings{Drafts::kAdversarial, 10, 64, 256, true}));

TEST(Speculation, ComputesFewerStepsForTextThatRepeats) {
  DraftSettings settings;
  TestEngine without(SpeculationSetup(settings));
  settings.drafts = Drafts::kLookup;
  TestEngine with(SpeculationSetup(settings));
  for (TestEngine* engine : {&without, &with}) {
    engine->Add("a", LetterPrompt(1), Endless(Greedy(100)));
    engine->Run();
  }
  EXPECT_EQ(with.Answer("a").token_ids, without.Answer("a").token_ids);
  EXPECT_LT(2 * with.model().num_forwards(), without.model().num_forwards());
  const json usage = json::parse(with.History("a").usage.value());
  EXPECT_GT(usage["extra"]["accepted_draft_tokens"], 50);
  EXPECT_FALSE(usage.contains("completion_tokens_details"));
}

// What was said before is guessed, in its own space only; a reset forgets it.
TEST(Speculation, EarlierAnswersAreGuessed) {
  TestEngine engine(SpeculationSetup({.drafts = Drafts::kSuffix, .length = 8}));
  GenerationConfig config = Endless(Sampled(60, 5));
  config.temperature = 3;
  int num_requests = 0;
  const auto num_accepted = [&](int64_t space) {
    config.cache_salt = space;
    const std::string id = std::to_string(num_requests++);
    engine.Add(id, LetterPrompt(1), config);
    engine.Run();
    EXPECT_EQ(engine.Answer(id).token_ids, engine.Answer("0").token_ids);
    return json::parse(*engine.History(id).usage)["extra"].value("accepted_draft_tokens", 0);
  };
  const int first = num_accepted(1);
  EXPECT_GT(num_accepted(1), first + 30);
  EXPECT_EQ(num_accepted(2), first) << "another space";
  engine.engine().Reset();
  EXPECT_EQ(num_accepted(1), first) << "forgotten";
}

TEST(Speculation, APredictionIsFollowedInAnyMode) {
  TestEngine without(SpeculationSetup({}));
  GenerationConfig config = Endless(Sampled(100, 3));
  without.Add("a", LetterPrompt(1), config);
  without.Run();
  const std::vector<int32_t> answer = without.Answer("a").token_ids;
  // The file before the edit: another line in the middle.
  std::vector<int32_t> before = answer;
  for (size_t i = 40; i < 46; ++i) before[i] = (before[i] + 1) % 30;
  config.prediction = before;
  for (const Drafts drafts : {Drafts::kNone, Drafts::kLookup}) {
    TestEngine with(SpeculationSetup({.drafts = drafts}));
    with.Add("a", LetterPrompt(1), config);
    with.Run();
    EXPECT_EQ(with.Answer("a").token_ids, answer);
    EXPECT_LT(3 * with.model().num_forwards(), without.model().num_forwards());
    const json usage = json::parse(with.History("a").usage.value());
    const int64_t accepted = usage["completion_tokens_details"]["accepted_prediction_tokens"];
    const int64_t rejected = usage["completion_tokens_details"]["rejected_prediction_tokens"];
    EXPECT_GE(accepted, 60);
    EXPECT_GE(rejected, 1);
    EXPECT_LE(accepted + rejected, std::ssize(before));
  }
}

// A prediction that is right may fill a step, unless a length was asked for or a grammar would have
// to take it back. Time stands still, so guesses cost nothing.
TEST(Speculation, APredictionMayBeLongerThanOtherGuesses) {
  TestEngine without(SpeculationSetup({}));
  const GenerationConfig plain = Endless(Sampled(100, 3));
  without.Add("a", LetterPrompt(1), plain);
  without.Run();
  const auto longest = [&](int64_t length_of_engine, const auto& change) {
    TestEngine with(SpeculationSetup({.drafts = Drafts::kLookup, .length = length_of_engine}));
    GenerationConfig config = plain;
    config.prediction = without.Answer("a").token_ids;
    change(config);
    with.Add("a", LetterPrompt(1), config);
    with.Run();
    if (config.response_format.type == ResponseFormatType::kText) {
      EXPECT_EQ(with.Answer("a").token_ids, without.Answer("a").token_ids);
    }
    return std::ssize(SpecDecode(with)["draft_count"]) - 1;
  };
  EXPECT_EQ(longest(0, [](GenerationConfig&) {}), kMaxPredictionLength);
  EXPECT_EQ(longest(4, [](GenerationConfig&) {}), 4);
  EXPECT_EQ(longest(0, [](GenerationConfig& c) { c.spec_draft_length = 10; }), kMaxDraftLength);
  EXPECT_LE(longest(0,
                    [](GenerationConfig& c) {
                      c.response_format.type = ResponseFormatType::kRegex;
                      c.response_format.text = "*";
                      c.debug_config.grammar_execution_mode = "constraint";
                    }),
            kMaxDraftLength);
}

// Guesses nothing, and counts how often it was asked.
class SilentDrafter final : public Drafter {
 public:
  explicit SilentDrafter(int* num_asked) : num_asked_(num_asked) {}

  void Propose(std::span<const int32_t>, int64_t, int64_t, std::vector<int32_t>*) override {
    ++*num_asked_;
  }

 private:
  int* const num_asked_;
};

// While nothing is guessed, seven of eight steps run ahead, and a drafter is not asked what follows
// a token that is not known.
TEST(Speculation, StepsRunAheadWhileNothingIsGuessed) {
  for (const bool run_ahead : {false, true}) {
    int num_asked = 0;
    TestEngineSetup setup = SpeculationSetup({.run_ahead = run_ahead});
    setup.make_drafter = [&](const DraftSource&) {
      return std::make_unique<SilentDrafter>(&num_asked);
    };
    TestEngine engine(setup);
    engine.Add("a", LetterPrompt(1), Endless(Greedy(80)));
    engine.Run();
    EXPECT_EQ(engine.Answer("a").token_ids.size(), 80);
    // It is not asked in the steps that try whether it is faster without guesses.
    EXPECT_GE(num_asked, run_ahead ? 8 : 60);
    EXPECT_LE(num_asked, run_ahead ? 12 : 80);
  }
}

TEST(Speculation, ARequestCanDoWithout) {
  TestEngine engine(SpeculationSetup({.drafts = Drafts::kLookup}));
  GenerationConfig config = Endless(Greedy(80));
  config.speculative = false;
  config.prediction = LetterPrompt(4);
  engine.Add("off", LetterPrompt(1), config);
  engine.Run();
  EXPECT_TRUE(SpecDecode(engine).empty());
  config = Endless(Greedy(80));
  config.spec_draft_length = 2;
  engine.Add("two", LetterPrompt(1), config);
  engine.Run();
  EXPECT_EQ(SpecDecode(engine)["draft_count"].size(), 3);
  EXPECT_EQ(engine.Answer("two").token_ids, engine.Answer("off").token_ids);
}

TEST(Speculation, ADraftModelThatIsRightSavesSteps) {
  TestEngine without(SpeculationSetup({}));
  TestEngine with(SpeculationSetup({.drafts = Drafts::kModel, .length = 5}));
  for (TestEngine* engine : {&without, &with}) {
    for (int i = 0; i < 3; ++i) engine->Add(std::to_string(i), LetterPrompt(i), Greedy(60));
    engine->Run();
  }
  for (const char* id : {"0", "1", "2"}) {
    EXPECT_EQ(with.Answer(id).token_ids, without.Answer(id).token_ids);
  }
  EXPECT_LT(4 * with.model().num_forwards(), without.model().num_forwards());
}

// The next turn of a conversation begins with what the draft model has read before.
TEST(Speculation, TheDraftModelKeepsConversations) {
  TestEngine engine(SpeculationSetup({.drafts = Drafts::kModel, .length = 2}));
  std::vector<int32_t> tokens = LetterPrompt(30);
  engine.Add("a", tokens, Greedy(6));
  engine.Run();
  const auto& answer = engine.Answer("a").token_ids;
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  const int64_t num_rows = engine.draft_model().num_rows();
  engine.Add("b", tokens, Greedy(6));
  engine.Run();
  EXPECT_LT(engine.draft_model().num_rows() - num_rows, 20);
}

TEST(Speculation, AFailingDraftModelCostsDraftsOnly) {
  for (const bool always : {false, true}) {
    TestEngine expected(SpeculationSetup({}));
    TestEngineSetup setup = SpeculationSetup({.drafts = Drafts::kModel, .length = 4});
    setup.draft_model->fail_at_forward = {2, 7, 8};
    setup.draft_model->fail_always = always;
    TestEngine engine(setup);
    for (TestEngine* e : {&engine, &expected}) {
      AddAll(*e, Configs());
      e->Run();
    }
    ExpectSameAnswers(engine, expected);
    EXPECT_GT(SpecDecode(engine)["num_failures"], 2);
  }
}

TEST(Speculation, AForwardThatFailsForDraftsIsRepeatedWithoutThem) {
  TestEngineSetup setup = SpeculationSetup({.drafts = Drafts::kAdversarial, .length = 10});
  setup.model.poison_token = 29;
  TestEngine engine(setup);
  TestEngineSetup without = SpeculationSetup({});
  without.model.poison_token = 29;
  TestEngine expected(without);
  GenerationConfig config = Greedy(60);
  config.logit_bias = {{29, -100}};  // the model never says it, drafts do
  for (TestEngine* e : {&engine, &expected}) {
    e->Add("a", LetterPrompt(2), config);
    e->Run();
  }
  EXPECT_EQ(engine.Answer("a").token_ids, expected.Answer("a").token_ids);
  EXPECT_EQ(engine.Answer("a").finish_reason, expected.Answer("a").finish_reason);
  EXPECT_GT(SpecDecode(engine)["num_failures"], 0);
}

}  // namespace
}  // namespace mlc_native::testing
