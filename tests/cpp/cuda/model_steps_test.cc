// The step queue of CudaModel on small checkpoints: tokens against those that the CPU draws, and
// steps ahead of the host against the same steps one by one.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cuda/model_driver.h"
#include "sampling/sampler.h"
#include "support/check.h"
#include "support/error.h"

namespace mlc_native {
namespace {

GenerationConfig Greedy() {
  GenerationConfig config;
  config.temperature = 0;
  return config;
}

// Two sequences that answer with what is drawn, step by step or one step ahead of the host.
class Answering {
 public:
  Answering(Model& model, const GenerationConfig& config) : model_(model), config_(config) {}

  std::vector<std::vector<int32_t>> Run(bool runs_ahead) {
    constexpr int kSteps = 5;
    for (int step = 0; step < kSteps; ++step) {
      const bool has_pending = runs_ahead && step > 0;
      Submit(has_pending);
      if (!runs_ahead || has_pending) CollectStep();
    }
    if (runs_ahead) CollectStep();
    return answers_;
  }

 private:
  using Counts = std::vector<std::pair<int32_t, int32_t>>;

  static Counts Count(const std::vector<int32_t>& tokens) {
    TokenCounts counts;
    for (int32_t token : tokens) counts.Add(token);
    return {counts.counts().begin(), counts.counts().end()};
  }

  void Submit(bool has_pending) {
    TestBatch batch;
    std::vector<Counts> counts;
    std::vector<TokenRow> rows;
    for (int32_t i = 0; i < 2; ++i) {
      const std::vector<int32_t>& answer = answers_[i];
      TestSequence& sequence = sequences_[i];
      if (sequence.length == 0) {
        batch.Add(sequence, SomeTokens(6 + i, 2));
      } else {
        batch.Add(sequence, {has_pending ? PendingToken(i) : answer.back()});
      }
      counts.push_back(Count(answer));
      rows.push_back({.config = &config_,
                      .counts = counts.back(),
                      .pending_row = has_pending ? i : TokenRow::kNone,
                      .sequence = static_cast<uint64_t>(i),
                      .position = static_cast<uint64_t>(sequence.length),
                      .allowed = {}});
    }
    model_.step_queue()->Forward(batch.batch());
    model_.step_queue()->Sample(rows);
  }

  void CollectStep() {
    const std::vector<DrawnToken> tokens = Collect(model_);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(tokens[i].error, "");
      answers_[i].push_back(tokens[i].result.token.token_id);
    }
  }

  Model& model_;
  const GenerationConfig& config_;
  std::vector<TestSequence> sequences_{TestSequence(0), TestSequence(1)};
  std::vector<std::vector<int32_t>> answers_{2};
};

TEST(CudaSteps, RunningAheadChangesNothing) {
  TinyModel tiny;
  const auto model = tiny.OnDevice();
  GenerationConfig penalties = Greedy();
  penalties.frequency_penalty = 0.2;
  penalties.repetition_penalty = 1.3;
  GenerationConfig random;
  random.seed = 7;
  random.top_p = 0.9;
  random.presence_penalty = 0.5;
  for (const GenerationConfig& config : {Greedy(), penalties, random}) {
    const auto answers = Answering(*model, config).Run(false);
    EXPECT_EQ(Answering(*model, config).Run(true), answers);
  }
  const auto greedy = Answering(*model, Greedy()).Run(false);
  EXPECT_NE(Answering(*model, penalties).Run(false), greedy);
}

TEST(CudaSteps, WhatIsDrawnIsEmbeddedAtItsPosition) {
  TinyModel tiny("OPTForCausalLM");
  const auto model = tiny.OnDevice();
  EXPECT_EQ(Answering(*model, Greedy()).Run(true), Answering(*model, Greedy()).Run(false));
}

// The CPU's draw from the CPU's logits of the same prompt.
SampleResult DrawnOnCpu(TinyModel& tiny, const GenerationConfig& config,
                        std::span<const int32_t> allowed) {
  TestSequence sequence(0);
  std::vector<float> logits = Logits(*tiny.OnCpu(), TestBatch().Add(sequence, SomeTokens(11, 3)));
  const TokenCountsView none;
  return Sampler().Sample(
      logits, {.config = &config, .generated = none, .position = 11, .allowed = allowed});
}

SampleResult DrawnOnDevice(Model& model, const GenerationConfig& config,
                           std::span<const int32_t> allowed) {
  TestSequence sequence(0);
  const TestBatch batch = TestBatch().Add(sequence, SomeTokens(11, 3)).Again();
  const TokenRow row{.config = &config, .counts = {}, .position = 11, .allowed = allowed};
  const std::vector<DrawnToken> tokens = Step(model, batch, {row, row});
  EXPECT_EQ(tokens[0].error, "");
  EXPECT_EQ(tokens[0].result.token.token_id, tokens[1].result.token.token_id);
  return tokens[0].result;
}

TEST(CudaSteps, TokensAndLogprobsAreTheCpus) {
  TinyModel tiny;
  const auto model = tiny.OnDevice();
  GenerationConfig biased = Greedy();
  biased.logit_bias = {{17, 3.0}, {4, -2.0}, {30, 2.5}};
  GenerationConfig logprobs = Greedy();
  logprobs.logprobs = true;
  logprobs.top_logprobs = 5;
  GenerationConfig random;
  random.seed = 123;
  random.top_k = 5;
  const std::vector<int32_t> all(2, -1);
  std::vector<int32_t> few{1 << 3 | 1 << 9, 1 << 2};
  for (const GenerationConfig& config : {Greedy(), biased, logprobs, random}) {
    for (const std::vector<int32_t>& allowed : {all, few, std::vector<int32_t>()}) {
      const SampleResult want = DrawnOnCpu(tiny, config, allowed);
      const SampleResult got = DrawnOnDevice(*model, config, allowed);
      EXPECT_EQ(got.token.token_id, want.token.token_id);
      EXPECT_NEAR(got.token.logprob, want.token.logprob, 1e-4);
      ASSERT_EQ(got.top_logprobs.size(), want.top_logprobs.size());
      for (size_t i = 0; i < want.top_logprobs.size(); ++i) {
        EXPECT_EQ(got.top_logprobs[i].token_id, want.top_logprobs[i].token_id);
        EXPECT_NEAR(got.top_logprobs[i].logprob, want.top_logprobs[i].logprob, 1e-4);
      }
    }
  }
}

// More lists than one upload has room for.
TEST(CudaSteps, LongListsOfManyRows) {
  constexpr int32_t kVocab = 600;
  TinyModel tiny("LlamaForCausalLM", R"("vocab_size": 600)");
  const auto model = tiny.OnDevice();
  TestSequence sequence(0);
  TestBatch batch;
  batch.Add(sequence, SomeTokens(3, 1));
  std::vector<GenerationConfig> configs(30, Greedy());
  std::vector<TokenRow> rows;
  for (int32_t i = 0; i < std::ssize(configs); ++i) {
    for (int32_t token = 0; token < kVocab; ++token) {
      configs[i].logit_bias.emplace_back(token, token == 19 * i + 7 ? 50.0 : -50.0);
    }
    rows.push_back({.config = &configs[i], .counts = {}, .allowed = {}});
    if (i > 0) batch.Again();
  }
  const std::vector<DrawnToken> tokens = Step(*model, batch, rows);
  ASSERT_EQ(tokens.size(), rows.size());
  for (int32_t i = 0; i < std::ssize(rows); ++i) {
    EXPECT_EQ(tokens[i].result.token.token_id, 19 * i + 7);
  }
}

TEST(CudaSteps, NothingAllowedIsAnErrorOfItsRow) {
  TinyModel tiny;
  const auto model = tiny.OnDevice();
  const GenerationConfig config = Greedy();
  const std::vector<int32_t> none(2, 0);
  TestSequence sequence(0);
  const TestBatch batch = TestBatch().Add(sequence, SomeTokens(5, 1)).Again();
  const std::vector<DrawnToken> tokens = Step(*model, batch,
                                              {{.config = &config, .counts = {}, .allowed = none},
                                               {.config = &config, .counts = {}, .allowed = {}}});
  EXPECT_EQ(tokens[0].error, kNothingAllowedMessage);
  EXPECT_EQ(tokens[1].error, "");
}

TEST(CudaSteps, BatchesThatBreakTheContractAreInternalErrors) {
  TinyModel tiny;
  const auto model = tiny.OnDevice();
  StepQueue& queue = *model->step_queue();
  TestSequence bad_page(0);
  bad_page.pages[0] = kTestPages;
  TestSequence good(1);
  EXPECT_THROW(queue.Forward(TestBatch().Add(bad_page, {1}).batch()), InternalError);
  EXPECT_THROW(queue.Forward(TestBatch().Add(good, {50}).batch()), InternalError);
  EXPECT_THROW(queue.Forward(TestBatch().Add(good, {PendingToken(0)}).batch()), InternalError);
  good.length = 0;
  queue.Forward(TestBatch().Add(good, {1}).batch());
  EXPECT_THROW(queue.Sample({}), InternalError);
  std::vector<DrawnToken> tokens;
  EXPECT_THROW(queue.Collect(&tokens), InternalError);
}

}  // namespace
}  // namespace mlc_native
