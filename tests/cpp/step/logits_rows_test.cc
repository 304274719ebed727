// Slices that ask for more than one row of logits: tokens drawn behind draft tokens, and prompts
// that are scored.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "step/step_bench.h"

namespace mlc_native::testing {
namespace {

constexpr int64_t kNumPages = 64;
constexpr int64_t kChunk = 64;

std::vector<GenerationConfig> Configs() {
  GenerationConfig penalized = Sampled(-1, 7);
  penalized.frequency_penalty = 1.5;
  penalized.presence_penalty = 0.5;
  penalized.repetition_penalty = 1.3;
  return {Greedy(-1), Sampled(-1, 3), penalized};
}

FakeModelOptions Model(bool run_ahead) {
  FakeModelOptions options;
  options.run_ahead = run_ahead;
  options.vocab_size = 64;
  options.peak = 4;  // draws differ from the most likely token often enough
  return options;
}

// Prompts of 5 + 3 i tokens, each with the configuration i.
std::vector<RequestStateEntry*> AddRequests(StepBench& bench) {
  std::vector<RequestStateEntry*> entries;
  const std::vector<GenerationConfig> configs = Configs();
  for (size_t i = 0; i < configs.size(); ++i) {
    std::vector<int32_t> prompt(5 + 3 * i);
    for (size_t k = 0; k < prompt.size(); ++k) prompt[k] = static_cast<int32_t>((k * 5 + i) % 64);
    entries.push_back(&bench.Add(std::to_string(i), prompt, configs[i]));
  }
  return entries;
}

std::vector<std::vector<int32_t>> OneAtATime(const FakeModelOptions& model, size_t num_tokens) {
  StepBench bench(kNumPages, kChunk, model);
  const std::vector<RequestStateEntry*> entries = AddRequests(bench);
  for (size_t i = 0; i < num_tokens; ++i) bench.Step();
  std::vector<std::vector<int32_t>> tokens;
  for (const RequestStateEntry* entry : entries) tokens.push_back(entry->tokens);
  return tokens;
}

int32_t UnusedToken(const std::vector<std::vector<int32_t>>& sequences) {
  for (int32_t token = 0;; ++token) {
    const bool used = std::ranges::any_of(sequences, [token](const std::vector<int32_t>& tokens) {
      return std::ranges::find(tokens, token) != tokens.end();
    });
    if (!used) return token;
  }
}

// Lets every running sequence check draft tokens: those of its true answer, wrong ones here and
// there.
class Drafter {
 public:
  Drafter(const std::vector<std::vector<int32_t>>& answers, double share_of_wrong_ones)
      : answers_(answers), is_wrong_(share_of_wrong_ones) {}

  void Draft(StepPlan* plan) {
    drafts_.clear();
    drafts_.reserve(plan->slices.size());
    for (PlannedSlice& slice : plan->slices) {
      if (!slice.is_decode || !slice.completes_input || slice.num_tokens != 1) continue;
      std::vector<int32_t>& drafts = drafts_.emplace_back(DraftsOf(*slice.entry));
      slice.draft_tokens = drafts.data();
      slice.num_drawn = 1 + std::ssize(drafts);
      slice.num_tokens += std::ssize(drafts);
      plan->num_rows += std::ssize(drafts);
    }
  }

  int wrong_token = -1;  // if set, every wrong draft token

 private:
  std::vector<int32_t> DraftsOf(const RequestStateEntry& entry) {
    const std::vector<int32_t>& answer = answers_[std::stoul(entry.rstate->request->id)];
    std::vector<int32_t> drafts;
    for (size_t at = entry.tokens.size(); drafts.size() < random_() % 6; ++at) {
      const bool wrong = at >= answer.size() || is_wrong_(random_);
      if (!wrong) {
        drafts.push_back(answer[at]);
      } else {
        drafts.push_back(wrong_token >= 0 ? wrong_token : static_cast<int32_t>(random_() % 64));
      }
    }
    return drafts;
  }

  const std::vector<std::vector<int32_t>>& answers_;
  std::bernoulli_distribution is_wrong_;
  std::mt19937 random_{1};
  std::vector<std::vector<int32_t>> drafts_;
};

void ExpectBegin(const std::vector<int32_t>& tokens, const std::vector<int32_t>& expected) {
  const size_t size = std::min(tokens.size(), expected.size());
  EXPECT_EQ(std::vector(tokens.begin(), tokens.begin() + static_cast<int64_t>(size)),
            std::vector(expected.begin(), expected.begin() + static_cast<int64_t>(size)));
}

class DraftRows : public ::testing::TestWithParam<bool> {};  // whether the model runs ahead

TEST_P(DraftRows, TokensAreThoseOfOneRowAtATime) {
  constexpr size_t kNumSteps = 60;
  const auto expected = OneAtATime(Model(GetParam()), 2 * kNumSteps);
  for (const double share_of_wrong_ones : {0.0, 0.2, 0.6, 1.0}) {
    SCOPED_TRACE(share_of_wrong_ones);
    Drafter drafter(expected, share_of_wrong_ones);
    StepBench bench(kNumPages, kChunk, Model(GetParam()));
    bench.on_plan = [&](StepPlan* plan) { drafter.Draft(plan); };
    const std::vector<RequestStateEntry*> entries = AddRequests(bench);
    int64_t num_kept = 0;
    for (size_t i = 0; i < kNumSteps; ++i) {
      bench.Step();
      for (const RequestStateEntry* entry : entries) {
        EXPECT_EQ(entry->num_tokens_to_compute(), 1);
        EXPECT_TRUE(entry->pending_rows.empty());
      }
    }
    for (size_t i = 0; i < entries.size(); ++i) {
      ExpectBegin(entries[i]->tokens, expected[i]);
      num_kept += entries[i]->num_generated() - static_cast<int64_t>(kNumSteps);
    }
    if (share_of_wrong_ones == 0.0) EXPECT_GT(num_kept, 60) << "draft tokens are never kept";
    if (share_of_wrong_ones < 1.0) EXPECT_GT(num_kept, 10);
  }
}

TEST_P(DraftRows, ABadRowBehindAWrongDraftTokenEndsNothing) {
  FakeModelOptions model = Model(GetParam());
  model.vocab_size = 4096;
  const auto expected = OneAtATime(model, 80);
  model.nan_token = UnusedToken(expected);
  Drafter drafter(expected, 0.5);
  drafter.wrong_token = model.nan_token;
  StepBench bench(kNumPages, kChunk, model);
  bench.on_plan = [&](StepPlan* plan) { drafter.Draft(plan); };
  const std::vector<RequestStateEntry*> entries = AddRequests(bench);
  for (int i = 0; i < 40; ++i) bench.Step();
  EXPECT_EQ(bench.metrics().num_errors, 0);
  for (size_t i = 0; i < entries.size(); ++i) ExpectBegin(entries[i]->tokens, expected[i]);
}

INSTANTIATE_TEST_SUITE_P(Models, DraftRows, ::testing::Bool());

TEST(ScoredRows, GiveTheLogProbabilityOfEachPromptToken) {
  const FakeModelOptions model = Model(RunsAheadByDefault());
  GenerationConfig config = Greedy(-1);
  config.prompt_logprobs = 2;
  for (int64_t chunk : {4, 5, 7, 64}) {
    SCOPED_TRACE(chunk);
    StepBench bench(kNumPages, chunk, model);
    // Ends with what the model would say: the most likely token has to be among those scored.
    std::vector<int32_t> prompt = Prompt(20);
    for (int32_t& token : prompt) token %= 64;
    const std::vector<int32_t> more = Oracle(model, prompt, 3);
    prompt.insert(prompt.end(), more.begin(), more.end());
    const RequestStateEntry& entry = bench.Add("a", prompt, config);
    bench.StepUntilComputed(entry);
    EXPECT_EQ(entry.num_scored, std::ssize(prompt) - 1);
    const std::vector<SampleResult> scores = bench.outputs().at(0).prompt_logprobs.value().tokens;
    ASSERT_EQ(scores.size(), prompt.size());
    const double log_sum = std::log(std::exp(4.0) + 63);
    for (size_t i = 1; i < prompt.size(); ++i) {
      const SampleResult& score = scores[i];
      const int32_t likely = FakeModel::NextToken(model, std::span(prompt).first(i));
      EXPECT_EQ(score.token.token_id, prompt[i]);
      EXPECT_NEAR(score.token.logprob, (prompt[i] == likely ? 4 : 0) - log_sum, 1e-5);
      ASSERT_EQ(score.top_logprobs.size(), 2);
      EXPECT_EQ(score.top_logprobs[0].token_id, likely);
      EXPECT_NEAR(score.top_logprobs[0].logprob, 4 - log_sum, 1e-5);
    }
    EXPECT_EQ(entry.tokens.back(), FakeModel::NextToken(model, prompt));
  }
}

}  // namespace
}  // namespace mlc_native::testing
