// Scenario: what one seed stands for. Swarm style: a seed first draws which features are on and how
// often each happens, then the sizes of the engine, so that every combination comes up alone too.
//
// Pure functions of the seed and of the features that were allowed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fake_model/fake_model.h"
#include "mlc_native/config.h"
#include "sim/random.h"
#include "sim/vocabulary.h"

namespace mlc_native::sim {

// What may happen in a simulation. Off: never.
enum class Feature {
  kTinyPool,        // a few pages above what one request needs
  kChunkedMode,     // prefill_mode "chunked" instead of "hybrid"
  kPrefixCache,     // prefix_cache_mode "radix" instead of "disable"
  kPins,            // pinned_system_prompt
  kSharedPrefixes,  // prompts begin like earlier prompts and answers
  kNearLimits,      // lengths within 10 tokens of a limit
  kBranches,        // n > 1
  kSampling,        // temperature, top_p, top_k, min_p
  kPenalties,       // penalties and logit_bias
  kStops,           // stop strings and stop tokens
  kEos,             // end-of-sequence tokens of the model
  kLogprobs,
  kText,             // a token table: outputs have text
  kGrammar,          // response_format, on a library of simple grammars
  kGrammarFails,     // a matcher throws, or a mask is not filled
  kIdReuse,          // ids of finished requests come again
  kInvalid,          // requests that must be refused
  kDeadlines,        // timeout_s, queue_timeout_s
  kPriorities,       // high, normal, low
  kQueueLimit,       // max_queue_length
  kAborts,           // by id: live, unknown, twice
  kEndAll,           // AbortAllRequests, FailAllRequests, Reset, a new engine; also in callbacks
  kCallbackThrows,   // the callback throws
  kCallbackCalls,    // the callback calls the engine
  kForwardFails,     // Forward throws: all requests of the step end
  kSequenceFails,    // Forward blames one sequence
  kPoisonTokens,     // tokens that always end their sequence with an error, one with NaN logits
  kCopyFails,        // CopyPages throws
  kAllocationFails,  // an operator new inside of the engine throws
  kRunAhead,         // the model samples by itself, steps run ahead of the engine
  kSampleFails,      // with run_ahead: StepQueue::Sample throws
  kCollectFails,     // with run_ahead: StepQueue::Collect throws
  kJumpForward,      // with grammar: text that it forces becomes tokens without a forward
  kPinCalls,         // PinPrefix and UnpinPrefix between steps
  kPromptLogprobs,
  kSpeculation,        // speculative_mode, and requests that change it
  kPredictions,        // requests with a prediction
  kAdversarialDrafts,  // drafters that guess anything, or throw
  kDraftModel,         // with speculation: a draft model or head, which fails now and then
  kTokenLimits,        // bad_words, no_repeat_ngram_size, min_tokens
  kPastAnswers,        // with speculation and no draft model: speculative_mode "suffix"
  kSlowGrammars,       // with grammar: matchers that get slower with every token
  kManyAnswers,        // with branches: n beyond what runs at once
  kOutputOptions,      // stop strings in the output, special tokens in the text, turns of a chat
  kAllowedTokens,      // allowed_token_ids
  kSalts,              // cache_salt
  kTrace,              // an event trace
  kGivenUp,            // requests that are aborted before they are added
  kRecurrent,          // the model reads states in slots instead of pages
  kRecurrentDrafts,    // with draft_model: so does the draft model
  kAdapters,           // adapters, which are loaded and unloaded while requests run
  kEmbeddings,         // requests whose prompts are embedded
  kInputRows,          // prompts with rows in place of tokens
  kWholePrompts,       // with embeddings: the model attends in both directions, and embeds only
  kNumFeatures
};

inline constexpr size_t kNumFeatures = static_cast<size_t>(Feature::kNumFeatures);

const char* NameOf(Feature feature);
// Throws std::invalid_argument for an unknown name.
Feature FeatureOf(const std::string& name);

using FeatureSet = std::array<bool, kNumFeatures>;
FeatureSet AllFeatures();

struct Scenario {
  uint64_t seed = 0;
  // How often a feature happens when it could, 0 when it is off.
  std::array<double, kNumFeatures> rates = {};
  testing::FakeModelOptions model;
  std::optional<testing::FakeModelOptions> draft_model;
  EngineConfig config;  // as Engine::FromModel takes it
  std::vector<int32_t> eos_token_ids;
  EmbeddingDefaults embedding;
  Vocabulary vocabulary;  // its table is null: no text
  int64_t num_steps = 0;  // with arrivals; then the engine drains
  double arrivals_per_step = 0;
  int64_t max_burst = 1;

  double rate(Feature feature) const { return rates[static_cast<size_t>(feature)]; }
  bool has(Feature feature) const { return rate(feature) > 0; }
  int64_t max_sequence_length() const;
  std::string Describe() const;
};

// A time within which some requests of a simulation end and others do not.
double DrawSeconds(SimRandom& rng);
Scenario DrawScenario(uint64_t seed, const FeatureSet& allowed);

}  // namespace mlc_native::sim
