#include "testing/speculation.h"

#include <gtest/gtest.h>

#include <chrono>

#include "draft/drafter.h"
#include "testing/adversarial_drafter.h"

namespace mlc_native::testing {
namespace {

using nlohmann::json;

FakeModelOptions LetterModel() {
  FakeModelOptions model;
  model.vocab_size = kNumLetterTokens;
  model.history_window = 1;  // answers repeat themselves
  model.peak = 4;
  return model;
}

// All but times and what tells of drafts and of the cache.
json Usage(const RequestHistory& history) {
  const json usage = json::parse(history.usage.value());
  const json& extra = usage["extra"];
  return {usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"],
          extra["decode_tokens"], extra["jump_forward_tokens"]};
}

}  // namespace

std::shared_ptr<const TokenTable> EightLetters() {
  std::vector<std::string> bytes(kNumLetterTokens);
  for (int64_t i = 0; i < kNumLetterTokens; ++i) {
    bytes[i] = std::string(1, static_cast<char>('a' + i % 8));
  }
  return std::make_shared<TokenTable>(std::move(bytes), std::vector<bool>(kNumLetterTokens), false);
}

std::vector<int32_t> LetterPrompt(int64_t i) {
  std::vector<int32_t> prompt;
  for (int64_t k = 0; k < 5 + 3 * i; ++k) prompt.push_back(static_cast<int32_t>((k * 5 + i) % 30));
  return prompt;
}

TestEngineSetup SpeculationSetup(const DraftSettings& settings) {
  TestEngineSetup setup;
  setup.model = LetterModel();
  setup.model.run_ahead = settings.run_ahead;
  setup.num_pages = settings.num_pages;
  setup.prefill_chunk_size = settings.chunk;
  setup.max_single_sequence_length = 120;
  setup.eos_token_ids = {kLastLetterToken};
  setup.token_table = EightLetters();
  if (settings.drafts == Drafts::kLookup) setup.speculative_mode = SpeculativeMode::kNGram;
  if (settings.drafts == Drafts::kSuffix) setup.speculative_mode = SpeculativeMode::kSuffix;
  if (settings.drafts == Drafts::kModel) {
    setup.speculative_mode = SpeculativeMode::kSmallDraft;
    setup.draft_model = setup.model;
  }
  setup.spec_draft_length = settings.length;
  setup.now = [] { return TimePoint(std::chrono::hours(1)); };
  if (settings.drafts == Drafts::kAdversarial) {
    setup.make_drafter = [](const DraftSource&) {
      return std::make_unique<AdversarialDrafter>(LetterModel(), 1);
    };
  }
  return setup;
}

GenerationConfig Endless(GenerationConfig config) {
  config.debug_config.ignore_eos = true;
  return config;
}

void AddAll(TestEngine& engine, const std::vector<GenerationConfig>& configs) {
  for (size_t i = 0; i < configs.size(); ++i) {
    engine.Add(std::to_string(i), LetterPrompt(static_cast<int64_t>(i)), configs[i]);
  }
}

void ExpectSameAnswer(const TestEngine& here, const TestEngine& expected, const std::string& id) {
  SCOPED_TRACE("request " + id);
  EXPECT_EQ(Usage(here.History(id)), Usage(expected.History(id)));
  ASSERT_EQ(here.History(id).sequences.size(), expected.History(id).sequences.size());
  for (int k = 0; k < std::ssize(expected.History(id).sequences); ++k) {
    const SequenceHistory& a = here.Answer(id, k);
    const SequenceHistory& b = expected.Answer(id, k);
    EXPECT_EQ(a.token_ids, b.token_ids);
    EXPECT_EQ(a.text, b.text);
    EXPECT_EQ(a.logprobs, b.logprobs);
    EXPECT_EQ(a.finish_reason, b.finish_reason);
  }
}

void ExpectSameAnswers(const TestEngine& here, const TestEngine& expected) {
  for (const auto& [id, history] : expected.checker().all()) ExpectSameAnswer(here, expected, id);
}

json SpecDecode(TestEngine& engine) {
  return json::parse(engine.engine().JSONMetrics()).value("spec_decode", json::object());
}

}  // namespace mlc_native::testing
