// What tests of speculation share: an engine whose tokens are letters, what drafts it, and what
// must be equal of answers with guesses and without.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "mlc_native/tokenizer.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {

// The letters a to h again and again, so that stop strings and grammars have something to do.
inline constexpr int64_t kNumLetterTokens = 32;
inline constexpr int32_t kLastLetterToken = kNumLetterTokens - 1;
std::shared_ptr<const TokenTable> EightLetters();

// Of different lengths; it has no kLastLetterToken.
std::vector<int32_t> LetterPrompt(int64_t i);

enum class Drafts { kNone, kLookup, kSuffix, kModel, kAdversarial };

struct DraftSettings {
  Drafts drafts = Drafts::kNone;
  int64_t length = 0;
  int64_t chunk = 64;
  int64_t num_pages = 256;
  bool run_ahead = RunsAheadByDefault();
};

// The model goes round in a few letters, which is what lookup finds. Time stands still, so that
// what is chosen by measured times is always the same.
TestEngineSetup SpeculationSetup(const DraftSettings& settings);

// Does not end with kLastLetterToken, the engine's end of sequence.
GenerationConfig Endless(GenerationConfig config);

// Adds a request "0", "1", ... for each config.
void AddAll(TestEngine& engine, const std::vector<GenerationConfig>& configs);

// Tokens, text, log-probabilities, finish reasons and the counts of the usage.
void ExpectSameAnswer(const TestEngine& here, const TestEngine& expected, const std::string& id);
// Of all requests that the engine expects.
void ExpectSameAnswers(const TestEngine& here, const TestEngine& expected);

// The engine's metrics of that name; empty if nothing was guessed.
nlohmann::json SpecDecode(TestEngine& engine);

}  // namespace mlc_native::testing
