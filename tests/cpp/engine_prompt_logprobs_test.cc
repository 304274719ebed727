// prompt_logprobs: what the engine says of the tokens of a prompt, and that neither chunks,
// neighbours, the prefix cache nor preemption change it.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "testing/test_engine.h"

namespace mlc_native::testing {
namespace {

constexpr float kPeak = 3;

GenerationConfig Scored(int64_t max_tokens, int64_t num_top = 2, int32_t n = 1) {
  GenerationConfig config = Greedy(max_tokens, n);
  config.prompt_logprobs = num_top;
  return config;
}

TestEngineSetup Peaked() {
  TestEngineSetup setup;
  setup.model.peak = kPeak;
  return setup;
}

// A prompt in which some tokens are those that the model would say.
std::vector<int32_t> HalfLikelyPrompt(const TestEngineSetup& setup, int64_t length,
                                      int32_t salt = 0) {
  std::vector<int32_t> prompt = Prompt(length, salt);
  for (size_t i = 1; i < prompt.size(); i += 2) {
    prompt[i] = FakeModel::NextToken(setup.model, std::span(prompt).first(i));
  }
  return prompt;
}

bool operator==(const TokenLogprob& a, const TokenLogprob& b) {
  return a.token_id == b.token_id && a.logprob == b.logprob;
}
bool operator==(const SampleResult& a, const SampleResult& b) {
  return a.token == b.token &&
         std::ranges::equal(a.top_logprobs, b.top_logprobs,
                            [](const auto& x, const auto& y) { return x == y; });
}

using Scores = std::vector<SampleResult>;

bool SameBits(const Scores& a, const Scores& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return x == y; });
}

// A TestEngine that keeps the scores of each request and counts the rows of logits.
class ScoringEngine : public TestEngine {
 public:
  explicit ScoringEngine(const TestEngineSetup& setup) : TestEngine(setup) {
    on_outputs = [this](const std::vector<RequestStreamOutput>& outputs) {
      for (const RequestStreamOutput& output : outputs) {
        if (output.prompt_logprobs) scores[output.request_id] = output.prompt_logprobs->tokens;
      }
    };
    model().set_on_forward([this](const ForwardBatch& batch) {
      num_logits += std::ssize(batch.logits_rows);
      if (on_forward) on_forward(batch);
    });
  }

  nlohmann::json Usage(const std::string& id) const {
    return nlohmann::json::parse(*History(id).usage);
  }

  std::map<std::string, Scores> scores;
  int64_t num_logits = 0;
  std::function<void(const ForwardBatch&)> on_forward;
};

void ExpectScores(const TestEngineSetup& setup, const std::vector<int32_t>& prompt,
                  const Scores& scores, size_t num_top = 2) {
  ASSERT_EQ(scores.size(), prompt.size());
  EXPECT_EQ(scores[0].token.token_id, prompt[0]);
  EXPECT_TRUE(scores[0].top_logprobs.empty());
  const double log_sum =
      std::log(std::exp(kPeak) + static_cast<double>(setup.model.vocab_size) - 1);
  for (size_t i = 1; i < prompt.size(); ++i) {
    const int32_t likely = FakeModel::NextToken(setup.model, std::span(prompt).first(i));
    EXPECT_EQ(scores[i].token.token_id, prompt[i]);
    EXPECT_NEAR(scores[i].token.logprob, (prompt[i] == likely ? kPeak : 0) - log_sum, 1e-5);
    ASSERT_EQ(scores[i].top_logprobs.size(), num_top);
    if (num_top == 0) continue;
    EXPECT_EQ(scores[i].top_logprobs[0].token_id, likely);
    EXPECT_NEAR(scores[i].top_logprobs[0].logprob, kPeak - log_sum, 1e-5);
  }
}

TEST(PromptLogprobs, AreTheModelsWhateverTheChunk) {
  TestEngineSetup setup = Peaked();
  setup.max_num_sequence = 1;
  const std::vector<int32_t> prompt = HalfLikelyPrompt(setup, 150);
  Scores first;
  for (int64_t chunk : {1, 2, 3, 7, 16, 63, 64, 65, 149, 150, 300}) {
    SCOPED_TRACE(chunk);
    setup.prefill_chunk_size = chunk;
    ScoringEngine engine(setup);
    engine.Add("a", prompt, Scored(3));
    engine.Run();
    ExpectScores(setup, prompt, engine.scores["a"]);
    if (first.empty()) first = engine.scores["a"];
    EXPECT_TRUE(SameBits(engine.scores["a"], first));
    EXPECT_EQ(engine.Answer("a").token_ids, Oracle(setup.model, prompt, 3));
  }
}

TEST(PromptLogprobs, OfManyTokensComeInDecentChunks) {
  TestEngineSetup setup = Peaked();
  setup.model = Waited(setup.model);
  setup.max_num_sequence = 1;
  setup.prefill_chunk_size = 512;
  const std::vector<int32_t> prompt = HalfLikelyPrompt(setup, 1000);
  ScoringEngine engine(setup);
  engine.Add("a", prompt, Scored(1));
  engine.Run();
  ExpectScores(setup, prompt, engine.scores["a"]);
  EXPECT_EQ(engine.model().num_forwards(), 16) << "999 rows by 64";
  EXPECT_EQ(engine.num_logits, 1000);
}

TEST(PromptLogprobs, TheNumberOfAlternativesIsThePromptsOwn) {
  const TestEngineSetup setup = Peaked();
  const std::vector<int32_t> prompt = HalfLikelyPrompt(setup, 20);
  for (int64_t num_top : {0, 1, 20}) {
    ScoringEngine engine(setup);
    GenerationConfig config = Scored(4, num_top);
    config.logprobs = true;
    config.top_logprobs = 3;
    engine.Add("a", prompt, config);
    engine.Run();
    ExpectScores(setup, prompt, engine.scores["a"], static_cast<size_t>(num_top));
    const auto answer = nlohmann::json::parse(engine.Answer("a").logprobs[0]);
    EXPECT_EQ(answer["top_logprobs"].size(), 3u);
  }
}

TEST(PromptLogprobs, AreThoseOfTheModelsOwnDistribution) {
  const TestEngineSetup setup = Peaked();
  const std::vector<int32_t> prompt = HalfLikelyPrompt(setup, 20);
  GenerationConfig config = Scored(4);
  config.temperature = 3;
  config.top_k = 2;
  config.repetition_penalty = 1.5;
  for (int32_t token : {1, 2, 3, 50}) config.logit_bias.emplace_back(token, 7.0);
  ScoringEngine engine(setup);
  engine.Add("a", prompt, config);
  engine.Run();
  ExpectScores(setup, prompt, engine.scores["a"]);
}

// Requests with and without scores, of one and of several branches, arrive while others run.
TEST(PromptLogprobs, DoNotDependOnTheBatch) {
  TestEngineSetup setup = Peaked();
  setup.max_num_sequence = 6;
  std::map<std::string, std::vector<int32_t>> prompts;
  for (int32_t i = 0; i < 24; ++i) {
    prompts[std::to_string(i)] = HalfLikelyPrompt(setup, 1 + i * i % 120, i);
  }
  for (int64_t chunk : {6, 50, 200}) {
    for (PrefillMode mode : {PrefillMode::kHybrid, PrefillMode::kChunked}) {
      setup.prefill_chunk_size = chunk;
      setup.prefill_mode = mode;
      ScoringEngine engine(setup);
      for (const auto& [id, prompt] : prompts) {
        GenerationConfig config = Scored(7, 2, 1 + std::stoi(id) % 3);
        if (std::stoi(id) % 4 == 3) config.prompt_logprobs.reset();
        engine.Add(id, prompt, config);
        engine.Step();
      }
      engine.Run();
      for (const auto& [id, prompt] : prompts) {
        SCOPED_TRACE(id);
        EXPECT_EQ(engine.Answer(id).token_ids, Oracle(setup.model, prompt, 7));
        ASSERT_EQ(engine.scores.contains(id), std::stoi(id) % 4 != 3);
        if (engine.scores.contains(id)) ExpectScores(setup, prompt, engine.scores[id]);
      }
    }
  }
}

TEST(PromptLogprobs, APreemptedSequenceIsNotScoredAgain) {
  TestEngineSetup setup = Peaked();
  setup.model = Waited(setup.model);
  for (PrefixCacheMode cache : {PrefixCacheMode::kRadix, PrefixCacheMode::kDisable}) {
    setup.prefix_cache_mode = cache;
    setup.num_pages = 12;
    setup.max_single_sequence_length = 192;
    ScoringEngine engine(setup);
    int64_t num_scored = 0;
    for (int32_t i = 0; i < 4; ++i) {
      const std::vector<int32_t> prompt = HalfLikelyPrompt(setup, 30 + i, i);
      num_scored += std::ssize(prompt) - 1;
      engine.Add(std::to_string(i), prompt, Scored(60));
    }
    engine.Run();
    const auto metrics = nlohmann::json::parse(engine.engine().JSONMetrics());
    EXPECT_GT(metrics["num_preemptions"], 0);
    int64_t num_drawn = 0;
    for (int32_t i = 0; i < 4; ++i) {
      const std::vector<int32_t> prompt = HalfLikelyPrompt(setup, 30 + i, i);
      ExpectScores(setup, prompt, engine.scores[std::to_string(i)]);
      num_drawn += std::ssize(engine.Answer(std::to_string(i)).token_ids);
    }
    EXPECT_EQ(engine.num_logits, num_scored + num_drawn);
  }
}

// Running sequences take the pages of a prompt that is partly computed.
TEST(PromptLogprobs, APromptThatStartsOverKeepsItsScores) {
  TestEngineSetup setup = Peaked();
  setup.model = Waited(setup.model);
  setup.prefill_chunk_size = 8;
  setup.num_pages = 16;
  setup.max_single_sequence_length = 256;
  for (PrefixCacheMode cache : {PrefixCacheMode::kRadix, PrefixCacheMode::kDisable}) {
    setup.prefix_cache_mode = cache;
    ScoringEngine engine(setup);
    for (int32_t i = 0; i < 3; ++i) engine.Add(std::to_string(i), Prompt(12, i), Greedy(60));
    for (int i = 0; i < 6; ++i) engine.Step();
    const std::vector<int32_t> prompt = HalfLikelyPrompt(setup, 140, 9);
    int64_t max_position = 0;
    bool started_over = false;
    engine.on_forward = [&](const ForwardBatch& batch) {
      for (const SequenceSlice& slice : batch.sequences) {
        if (slice.num_tokens == 1) continue;
        started_over |= slice.position < max_position;
        max_position = slice.position;
      }
    };
    engine.Add("a", prompt, Scored(1));
    engine.Run();
    // With a cache, the prompt may go on where it was.
    if (cache == PrefixCacheMode::kDisable) EXPECT_TRUE(started_over);
    ExpectScores(setup, prompt, engine.scores["a"]);
    EXPECT_EQ(engine.num_logits, 3 * 60 + 140);
  }
}

TEST(PromptLogprobs, DoNotReadThePrefixCacheAndFillIt) {
  TestEngineSetup setup = Peaked();
  ScoringEngine engine(setup);
  const std::vector<int32_t> prompt = HalfLikelyPrompt(setup, 100);
  const auto cached = [&](const std::string& id, const std::vector<int32_t>& tokens,
                          const GenerationConfig& config) -> int64_t {
    engine.Add(id, tokens, config);
    engine.Run();
    return engine.Usage(id)["extra"]["cached_tokens"];
  };
  EXPECT_EQ(cached("before", prompt, Greedy(2)), 0);
  EXPECT_EQ(cached("scored", prompt, Scored(2)), 0);
  ExpectScores(setup, prompt, engine.scores["scored"]);
  EXPECT_EQ(cached("after", prompt, Greedy(2)), 99);
  const std::vector<int32_t> other = HalfLikelyPrompt(setup, 100, 5);
  EXPECT_EQ(cached("other", other, Scored(2)), 0);
  EXPECT_EQ(cached("other again", other, Greedy(2)), 99);
}

TEST(PromptLogprobs, NoTokensAreAnAnswerOfTheScoresAlone) {
  TestEngineSetup setup = Peaked();
  setup.prefill_chunk_size = 16;
  for (int32_t n : {1, 3}) {
    ScoringEngine engine(setup);
    for (int64_t length : {1, 2, 40}) {
      const std::string id = std::to_string(length);
      const std::vector<int32_t> prompt = HalfLikelyPrompt(setup, length);
      GenerationConfig config = Scored(0, 2, n);
      config.logprobs = true;
      config.stop_token_ids = Oracle(setup.model, prompt, 1);
      engine.Add(id, prompt, config);
      engine.Run();
      ExpectScores(setup, prompt, engine.scores[id]);
      for (int32_t i = 0; i < n; ++i) {
        EXPECT_TRUE(engine.Answer(id, i).token_ids.empty());
        EXPECT_EQ(engine.Answer(id, i).text, "");
        EXPECT_EQ(engine.Answer(id, i).finish_reason, FinishReason::kLength);
      }
      EXPECT_EQ(engine.Usage(id)["completion_tokens"], 0);
      EXPECT_EQ(engine.Usage(id)["prompt_tokens"], length);
    }
  }
}

TEST(PromptLogprobs, AnEndBeforeThePromptIsComputedHasNone) {
  TestEngineSetup setup = Peaked();
  setup.prefill_chunk_size = 8;
  ScoringEngine engine(setup);
  engine.Add("a", HalfLikelyPrompt(setup, 100), Scored(5));
  for (int i = 0; i < 4; ++i) engine.Step();
  engine.engine().AbortRequest("a");
  engine.Run();
  EXPECT_EQ(engine.Answer("a").finish_reason, FinishReason::kAbort);
  EXPECT_TRUE(engine.scores.empty());
}

TEST(PromptLogprobs, ABadRowEndsItsRequestOnly) {
  TestEngineSetup setup = Peaked();
  setup.model.nan_token = 251;
  ScoringEngine engine(setup);
  std::vector<int32_t> bad = Prompt(30);
  bad[11] = 251;
  engine.Add("bad", bad, Scored(5));
  engine.Add("unscored", bad, Greedy(5));
  const std::vector<int32_t> prompt = HalfLikelyPrompt(setup, 30, 3);
  engine.Add("good", prompt, Scored(5));
  engine.Run();
  EXPECT_EQ(engine.Answer("bad").finish_reason, FinishReason::kError);
  EXPECT_NE(engine.History("bad").error_message.find("NaN"), std::string::npos);
  EXPECT_EQ(engine.Answer("unscored").finish_reason, FinishReason::kLength);
  ExpectScores(setup, prompt, engine.scores["good"]);
  EXPECT_FALSE(engine.scores.contains("bad"));
}

}  // namespace
}  // namespace mlc_native::testing
