// Speculation changes when tokens come and never which: answers with drafts of every kind are those
// without, and drafts take nothing that anything else needs.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "draft/drafter.h"
#include "mlc_native/tokenizer.h"
#include "testing/adversarial_drafter.h"
#include "testing/test_engine.h"
#include "testing/virtual_clock.h"

namespace mlc_native::testing {
namespace {

using nlohmann::json;

// Tokens are letters, so that stop strings and grammars have something to do. The model goes round
// in a few letters, which is what lookup finds.
constexpr int64_t kVocabSize = 32;
constexpr int32_t kStopToken = 31;

std::shared_ptr<const TokenTable> EightLetters() {
  std::vector<std::string> bytes(kVocabSize);
  for (int64_t i = 0; i < kVocabSize; ++i)
    bytes[i] = std::string(1, static_cast<char>('a' + i % 8));
  return std::make_shared<TokenTable>(std::move(bytes), std::vector<bool>(kVocabSize), false);
}

FakeModelOptions Model() {
  FakeModelOptions model;
  model.vocab_size = kVocabSize;
  model.history_window = 1;  // answers repeat themselves
  model.peak = 4;
  return model;
}

enum class Drafts { kNone, kLookup, kSuffix, kModel, kAdversarial };

struct Settings {
  Drafts drafts = Drafts::kNone;
  int64_t length = 0;
  int64_t chunk = 64;
  int64_t num_pages = 256;
  bool run_ahead = RunsAheadByDefault();
};

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

TestEngineSetup MakeSetup(const Settings& settings) {
  TestEngineSetup setup;
  setup.model = Model();
  setup.model.run_ahead = settings.run_ahead;
  setup.num_pages = settings.num_pages;
  setup.prefill_chunk_size = settings.chunk;
  setup.max_single_sequence_length = 120;
  setup.eos_token_ids = {kStopToken};
  setup.token_table = EightLetters();
  if (settings.drafts == Drafts::kLookup) setup.speculative_mode = SpeculativeMode::kNGram;
  if (settings.drafts == Drafts::kSuffix) setup.speculative_mode = SpeculativeMode::kSuffix;
  if (settings.drafts == Drafts::kModel) {
    setup.speculative_mode = SpeculativeMode::kSmallDraft;
    setup.draft_model = setup.model;
  }
  setup.spec_draft_length = settings.length;
  // Time stands still, so that what is chosen by measured times is always the same.
  setup.now = [] { return TimePoint(std::chrono::hours(1)); };
  if (settings.drafts == Drafts::kAdversarial) {
    setup.make_drafter = [](const DraftSource&) {
      return std::make_unique<AdversarialDrafter>(Model(), 1);
    };
  }
  return setup;
}

GenerationConfig Endless(GenerationConfig config) {
  config.debug_config.ignore_eos = true;
  return config;
}

std::vector<int32_t> LetterPrompt(int64_t i) {
  std::vector<int32_t> prompt;
  for (int64_t k = 0; k < 5 + 3 * i; ++k) prompt.push_back(static_cast<int32_t>((k * 5 + i) % 30));
  return prompt;
}

void AddAll(TestEngine& engine, const std::function<void(GenerationConfig&)>& change = {}) {
  const std::vector<GenerationConfig> configs = Configs();
  for (size_t i = 0; i < configs.size(); ++i) {
    GenerationConfig config = configs[i];
    if (change) change(config);
    engine.Add(std::to_string(i), LetterPrompt(static_cast<int64_t>(i)), config);
  }
}

// What must be equal of the usage: all but times and what tells of drafts and of the cache.
json Usage(const RequestHistory& history) {
  const json usage = json::parse(history.usage.value());
  const json& extra = usage["extra"];
  return {usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"],
          extra["decode_tokens"], extra["jump_forward_tokens"]};
}

void ExpectSameAnswers(const TestEngine& here, const TestEngine& expected) {
  const std::vector<GenerationConfig> configs = Configs();
  for (size_t i = 0; i < configs.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    const std::string id = std::to_string(i);
    EXPECT_EQ(Usage(here.History(id)), Usage(expected.History(id)));
    for (int k = 0; k < configs[i].n; ++k) {
      const SequenceHistory& a = here.Answer(id, k);
      const SequenceHistory& b = expected.Answer(id, k);
      EXPECT_EQ(a.token_ids, b.token_ids);
      EXPECT_EQ(a.text, b.text);
      EXPECT_EQ(a.logprobs, b.logprobs);
      EXPECT_EQ(a.finish_reason, b.finish_reason);
    }
  }
}

json SpecDecode(TestEngine& engine) {
  return json::parse(engine.engine().JSONMetrics()).value("spec_decode", json::object());
}

class SpeculationEquality : public ::testing::TestWithParam<Settings> {};

TEST_P(SpeculationEquality, AnswersAreThoseWithoutDrafts) {
  TestEngine expected(MakeSetup({}));
  AddAll(expected);
  expected.Run();
  TestEngine here(MakeSetup(GetParam()));
  AddAll(here);
  here.Run();
  ExpectSameAnswers(here, expected);
  const json metrics = SpecDecode(here);
  EXPECT_GT(metrics["num_accepted_tokens"], 5);
  EXPECT_GT(metrics["num_draft_tokens"], metrics["num_accepted_tokens"]);
}

INSTANTIATE_TEST_SUITE_P(
    Drafts, SpeculationEquality,
    ::testing::Values(Settings{Drafts::kLookup, 1}, Settings{Drafts::kLookup, 3},
                      Settings{Drafts::kLookup, 10}, Settings{Drafts::kLookup, 0},
                      Settings{Drafts::kLookup, 10, 16}, Settings{Drafts::kLookup, 5, 64, 40},
                      Settings{Drafts::kSuffix, 0}, Settings{Drafts::kSuffix, 10, 16},
                      Settings{Drafts::kModel, 0}, Settings{Drafts::kModel, 1},
                      Settings{Drafts::kModel, 10}, Settings{Drafts::kModel, 4, 32},
                      Settings{Drafts::kModel, 5, 64, 9},
                      Settings{Drafts::kModel, 5, 64, 256, true}, Settings{Drafts::kAdversarial, 0},
                      Settings{Drafts::kAdversarial, 10, 32},
                      Settings{Drafts::kAdversarial, 4, 64, 9},
                      Settings{Drafts::kAdversarial, 10, 64, 256, true}));

TEST(Speculation, ComputesFewerStepsForTextThatRepeats) {
  Settings settings;
  TestEngine without(MakeSetup(settings));
  settings.drafts = Drafts::kLookup;
  TestEngine with(MakeSetup(settings));
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
  TestEngine engine(MakeSetup({.drafts = Drafts::kSuffix, .length = 8}));
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
  TestEngine without(MakeSetup({}));
  GenerationConfig config = Endless(Sampled(100, 3));
  without.Add("a", LetterPrompt(1), config);
  without.Run();
  const std::vector<int32_t> answer = without.Answer("a").token_ids;
  // The file before the edit: another line in the middle.
  std::vector<int32_t> before = answer;
  for (size_t i = 40; i < 46; ++i) before[i] = (before[i] + 1) % 30;
  config.prediction = before;
  for (const Drafts drafts : {Drafts::kNone, Drafts::kLookup}) {
    TestEngine with(MakeSetup({.drafts = drafts}));
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
  TestEngine without(MakeSetup({}));
  const GenerationConfig plain = Endless(Sampled(100, 3));
  without.Add("a", LetterPrompt(1), plain);
  without.Run();
  const auto longest = [&](int64_t length_of_engine, const auto& change) {
    TestEngine with(MakeSetup({.drafts = Drafts::kLookup, .length = length_of_engine}));
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
    TestEngineSetup setup = MakeSetup({.run_ahead = run_ahead});
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
  TestEngine engine(MakeSetup({.drafts = Drafts::kLookup}));
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
  TestEngine without(MakeSetup({}));
  TestEngine with(MakeSetup({.drafts = Drafts::kModel, .length = 5}));
  for (TestEngine* engine : {&without, &with}) {
    for (int i = 0; i < 3; ++i) engine->Add(std::to_string(i), LetterPrompt(i), Greedy(60));
    engine->Run();
  }
  for (const char* id : {"0", "1", "2"}) {
    EXPECT_EQ(with.Answer(id).token_ids, without.Answer(id).token_ids);
  }
  EXPECT_LT(4 * with.model().num_forwards(), without.model().num_forwards());
}

// Times are those of a clock that the forwards move: the target takes 1 ms and 0.1 ms a row.
struct Costs {
  double draft_ms = 0;  // of a forward
  bool is_right = true;
  double max_share = 0;  // of the time without a draft model
  int64_t num_requests = 3;
  int64_t prompt_len = 8;
  int64_t num_tokens = 600;
};

class SpeculationCosts : public ::testing::TestWithParam<Costs> {};

TEST_P(SpeculationCosts, AreNotHigherThanWithout) {
  const auto seconds = [&](Drafts drafts) {
    VirtualClock clock;
    TestEngineSetup setup = MakeSetup({.drafts = drafts});
    setup.model.run_ahead = false;
    setup.max_single_sequence_length = 700;
    setup.prefill_chunk_size = 512;
    setup.now = clock.function();
    if (setup.draft_model) {
      setup.draft_model->run_ahead = false;
      if (!GetParam().is_right) setup.draft_model->history_window = 3;
    }
    TestEngine engine(setup);
    engine.model().set_on_forward([&](const ForwardBatch& batch) {
      clock.Advance(1e-3 + 1e-4 * static_cast<double>(batch.token_ids.size()));
    });
    if (setup.draft_model) {
      engine.draft_model().set_on_forward([&](const ForwardBatch& batch) {
        const auto num_rows = static_cast<double>(batch.token_ids.size());
        clock.Advance(1e-3 * GetParam().draft_ms * (0.9 + 0.1 * num_rows));
      });
    }
    const TimePoint start = clock.now();
    for (int i = 0; i < GetParam().num_requests; ++i) {
      std::vector<int32_t> prompt(GetParam().prompt_len, i % 30);
      engine.Add(std::to_string(i), std::move(prompt), Endless(Greedy(GetParam().num_tokens)));
      if (GetParam().prompt_len > 100) engine.Run();
    }
    engine.Run();
    return std::chrono::duration<double>(clock.now() - start).count();
  };
  EXPECT_LT(seconds(Drafts::kModel), GetParam().max_share * seconds(Drafts::kNone));
}

INSTANTIATE_TEST_SUITE_P(DraftModels, SpeculationCosts,
                         ::testing::Values(Costs{0.1, true, 0.5}, Costs{0.1, false, 1.03},
                                           Costs{0.5, false, 1.03}, Costs{2, true, 1.03},
                                           Costs{2, false, 1.05},
                                           // Prompts that are long for such answers.
                                           Costs{0.2, true, 1.05, 20, 500, 3}));

// The next turn of a conversation begins with what the draft model has read before.
TEST(Speculation, TheDraftModelKeepsConversations) {
  TestEngine engine(MakeSetup({.drafts = Drafts::kModel, .length = 2}));
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
    TestEngine expected(MakeSetup({}));
    TestEngineSetup setup = MakeSetup({.drafts = Drafts::kModel, .length = 4});
    setup.draft_model->fail_at_forward = {2, 7, 8};
    setup.draft_model->fail_always = always;
    TestEngine engine(setup);
    for (TestEngine* e : {&engine, &expected}) {
      AddAll(*e);
      e->Run();
    }
    ExpectSameAnswers(engine, expected);
    EXPECT_GT(SpecDecode(engine)["num_failures"], 2);
  }
}

// Drafts take pages that are free and rows that nothing else needs.
TEST(Speculation, NothingIsPreemptedForDrafts) {
  // Two sequences fill the pool to the last page.
  Settings settings{.drafts = Drafts::kLookup, .length = 10, .num_pages = 8};
  TestEngine engine(MakeSetup(settings));
  for (int i = 0; i < 2; ++i) {
    const std::vector<int32_t> prompt = LetterPrompt(i);
    engine.Add(std::to_string(i), prompt, Endless(Greedy(4 * kKvPageSize - std::ssize(prompt))));
  }
  engine.Run();
  EXPECT_EQ(json::parse(engine.engine().JSONMetrics())["num_preemptions"], 0);
  EXPECT_GT(SpecDecode(engine)["num_accepted_tokens"], 0);
}

TEST(Speculation, AForwardThatFailsForDraftsIsRepeatedWithoutThem) {
  TestEngineSetup setup = MakeSetup({.drafts = Drafts::kAdversarial, .length = 10});
  setup.model.poison_token = 29;
  TestEngine engine(setup);
  TestEngineSetup without = MakeSetup({});
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
