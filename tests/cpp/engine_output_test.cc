// What the engine says: text, stop strings, stop tokens, lengths, log-probabilities.
#include <gtest/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

#include "testing/test_engine.h"
#include "tokenizer/logprob_json.h"

namespace mlc_native::testing {
namespace {

using nlohmann::json;

constexpr int32_t kSpace = 26;
constexpr int32_t kHello = 27;
constexpr int32_t kWorld = 28;
constexpr int32_t kEuroStart = 29;
constexpr int32_t kEuroEnd = 30;
constexpr int32_t kEosToken = 31;
constexpr int32_t kSpaceA = 32;

// Letters a to z are 0 to 25.
std::shared_ptr<const TokenTable> LettersAndWords(bool strip_leading_space = false) {
  std::vector<std::string> bytes(256);
  for (int i = 0; i < 26; ++i) bytes[i] = std::string(1, static_cast<char>('a' + i));
  bytes[kSpace] = " ";
  bytes[kHello] = "hello";
  bytes[kWorld] = " world";
  bytes[kEuroStart] = "\xe2\x82";
  bytes[kEuroEnd] = "\xac";
  bytes[kEosToken] = "</s>";
  bytes[kSpaceA] = " a";
  std::vector<bool> special(256, false);
  special[kEosToken] = true;
  return std::make_shared<TokenTable>(bytes, special, strip_leading_space);
}

std::vector<int32_t> Spell(const std::string& letters) {
  std::vector<int32_t> ids;
  for (char c : letters) ids.push_back(c == ' ' ? kSpace : c - 'a');
  return ids;
}

// An engine whose model says `script`, and its answer to one request.
class Script {
 public:
  explicit Script(std::vector<int32_t> script) {
    setup_.model.script = std::move(script);
    setup_.token_table = LettersAndWords();
  }
  Script& Eos(int32_t id) {
    setup_.eos_token_ids = {id};
    return *this;
  }
  Script& Strip() {
    setup_.token_table = LettersAndWords(/*strip_leading_space=*/true);
    return *this;
  }
  Script& BeginTurn() {
    begins_turn_ = true;
    return *this;
  }
  const RequestHistory& Ask(const GenerationConfig& config) {
    engine_ = std::make_unique<TestEngine>(setup_);
    const std::vector<Data> inputs = {TokenData{{200, 201}}};
    engine_->AddRequest(engine_->engine().CreateRequest("a", inputs, config, begins_turn_));
    engine_->Run(1000);
    return engine_->History("a");
  }

 private:
  TestEngineSetup setup_;
  bool begins_turn_ = false;
  std::unique_ptr<TestEngine> engine_;
};

GenerationConfig Stop(std::vector<std::string> stop_strs, int64_t max_tokens = 20) {
  GenerationConfig config = Greedy(max_tokens);
  config.stop_strs = std::move(stop_strs);
  return config;
}

TEST(EngineOutput, TextComesWithTokens) {
  Script script({kHello, kWorld});
  const RequestHistory& history = script.Ask(Greedy(2));
  EXPECT_EQ(history.only().text, "hello world");
  EXPECT_EQ(history.only().token_ids, (std::vector<int32_t>{kHello, kWorld}));
}

TEST(EngineOutput, ATurnOfAChatLosesTheSpaceThatTheTokenizerAdds) {
  const auto answer = [](std::vector<int32_t> script) {
    return Script(std::move(script)).Strip().BeginTurn().Ask(Greedy(2)).only().text;
  };
  EXPECT_EQ(answer({kSpaceA, kSpaceA}), "a a");
  EXPECT_EQ(answer({kSpace, kSpaceA}), " a");
  EXPECT_EQ(answer({kEosToken, kSpaceA}), "a");
  EXPECT_EQ(Script({kSpaceA}).BeginTurn().Ask(Greedy(1)).only().text, " a") << "it adds none";
}

TEST(EngineOutput, AContinuationOfThePromptKeepsItsFirstSpace) {
  EXPECT_EQ(Script({kSpaceA, kSpaceA}).Strip().Ask(Greedy(2)).only().text, " a a");
}

TEST(EngineOutput, ACharacterCutByTheEndIsReplaced) {
  EXPECT_EQ(Script({kEuroStart, kEuroEnd}).Ask(Greedy(2)).only().text, "\u20ac");
  EXPECT_EQ(Script({kEuroStart, kEuroEnd}).Ask(Greedy(1)).only().text, "\ufffd");
}

TEST(EngineOutput, AStopTokenEndsTheAnswerAndIsNotPartOfIt) {
  Script script(Spell("abc"));
  GenerationConfig config = Greedy(20);
  config.stop_token_ids = {2};
  const RequestHistory& history = script.Ask(config);
  EXPECT_EQ(history.only().token_ids, Spell("ab"));
  EXPECT_EQ(history.only().text, "ab");
  EXPECT_EQ(history.only().finish_reason, FinishReason::kStop);
  EXPECT_EQ(json::parse(*history.usage)["completion_tokens"], 3) << "it was sampled";
}

TEST(EngineOutput, IgnoreEosIgnoresOnlyTheModelsIds) {
  Script script({0, kEosToken, 1});
  GenerationConfig config = Greedy(5);
  EXPECT_EQ(script.Eos(kEosToken).Ask(config).only().token_ids, Spell("a"));
  config.debug_config.ignore_eos = true;
  EXPECT_EQ(script.Ask(config).only().token_ids,
            (std::vector<int32_t>{0, kEosToken, 1, 0, kEosToken}));
  EXPECT_EQ(script.Ask(config).only().text, "aba") << "special tokens have no text";
  config.stop_token_ids = {1};
  EXPECT_EQ(script.Ask(config).only().token_ids, (std::vector<int32_t>{0, kEosToken}));
  config.stop_token_ids = {};
  config.stop_strs = {"b"};
  EXPECT_EQ(script.Ask(config).only().finish_reason, FinishReason::kStop);
}

TEST(EngineOutput, TextBeforeAStopStringIsKeptToTheByte) {
  Script script({kHello, kWorld, 0});
  const RequestHistory& history = script.Ask(Stop({"o w"}));
  EXPECT_EQ(history.only().text, "hell");
  EXPECT_EQ(history.only().finish_reason, FinishReason::kStop);
  EXPECT_EQ(json::parse(*history.usage)["completion_tokens"], 2);
}

TEST(EngineOutput, WhatOnlyLookedLikeAStopStringComesOut) {
  const RequestHistory history = Script(Spell("abcabd")).Ask(Stop({"abd"}));
  EXPECT_EQ(history.only().text, "abc");
  EXPECT_EQ(history.only().token_ids, Spell("abc"));
}

TEST(EngineOutput, WithheldTokensComeOutAtTheEnd) {
  Script script(Spell("ab"));
  EXPECT_EQ(script.Ask(Stop({"bac"}, 4)).only().text, "abab");
  EXPECT_EQ(script.Ask(Stop({"bac"}, 4)).only().token_ids, Spell("abab"));
  GenerationConfig config = Stop({"xyz"}, 4);
  config.stop_token_ids = {1};
  EXPECT_EQ(script.Ask(config).only().text, "a");
}

TEST(EngineOutput, AStopStringGoesBeforeAStopTokenThatEndsIt) {
  Script script(Spell("xab"));
  GenerationConfig config = Stop({"ab"});
  config.stop_token_ids = {1};
  EXPECT_EQ(script.Ask(config).only().text, "x");
  config.stop_strs = {"abb"};  // not complete: the token stops, what was withheld comes out
  EXPECT_EQ(script.Ask(config).only().text, "xa");
}

TEST(EngineOutput, MaxTokensZeroIsAnEmptyAnswerAtOnce) {
  TestEngine engine({});
  engine.Add("a", Prompt(9), Greedy(0, 2));
  engine.ExpectIdle();
  EXPECT_EQ(engine.model().num_forwards(), 0);
  EXPECT_TRUE(engine.Answer("a", 1).token_ids.empty());
  EXPECT_EQ(engine.Answer("a", 1).finish_reason, FinishReason::kLength);
  const json usage = json::parse(*engine.History("a").usage);
  EXPECT_EQ(usage["prompt_tokens"], 9);
  EXPECT_EQ(usage["completion_tokens"], 0);
}

TEST(EngineOutput, ASequenceEndsAtTheMaximalLength) {
  TestEngine engine({.max_single_sequence_length = 30});
  engine.Add("a", Prompt(20), Greedy(-1));
  engine.Add("b", Prompt(29), Greedy(5));
  engine.Run();
  EXPECT_EQ(engine.Answer("a").token_ids.size(), 10u);
  EXPECT_EQ(engine.Answer("a").finish_reason, FinishReason::kLength);
  EXPECT_EQ(engine.Answer("b").token_ids.size(), 1u);
}

TEST(EngineOutput, LogprobsComeWithTheirTokens) {
  Script script(Spell("abcabd"));
  GenerationConfig config = Stop({"abd"});
  config.logprobs = true;
  config.top_logprobs = 3;
  const RequestHistory& history = script.Ask(config);
  ASSERT_EQ(history.only().logprobs.size(), 3u);  // the checker pairs them with each delta
  const json first = json::parse(history.only().logprobs[0]);
  EXPECT_EQ(first["token"], "a");
  EXPECT_EQ(first["bytes"], json::array({97}));
  EXPECT_LE(first["logprob"].get<double>(), 0);
  EXPECT_GT(first["logprob"].get<double>(), -0.01);
  ASSERT_EQ(first["top_logprobs"].size(), 3u);
  EXPECT_EQ(first["top_logprobs"][0]["token"], "a");
  EXPECT_EQ(json::parse(history.only().logprobs[2])["token"], "c");
}

TEST(LogprobJson, EscapesEveryByteAndHasNoInfinity) {
  std::vector<std::string> bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(std::string(1, static_cast<char>(i)));
  bytes.push_back("\"\\\u20ac\n");
  const TokenTable table(bytes, {}, false);
  for (int32_t id = 0; id < 257; ++id) {
    const SampleResult result{{id, -INFINITY}, {{id, -0.25f}}};
    const json parsed = json::parse(LogprobJson(result, &table));
    EXPECT_EQ(parsed["logprob"], -9999.0);
    EXPECT_EQ(parsed["top_logprobs"][0]["logprob"], -0.25);
    if (id < 128) {
      EXPECT_EQ(parsed["token"], bytes[id]);
    }
    EXPECT_EQ(parsed["bytes"].size(), bytes[id].size());
  }
  const json last = json::parse(LogprobJson(SampleResult{{256, 0}, {}}, &table));
  EXPECT_EQ(last["token"], "\"\\\u20ac\n");
  EXPECT_TRUE(last["top_logprobs"].empty());
  EXPECT_EQ(json::parse(LogprobJson(SampleResult{{7, 0}, {}}, nullptr))["token"], "token_id:7");
}

}  // namespace
}  // namespace mlc_native::testing
