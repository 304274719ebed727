#include "sim/scenario.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "mlc_native/detail/page.h"

namespace mlc_native::sim {
namespace {

constexpr std::array<const char*, kNumFeatures> kFeatureNames = {
    "tiny_pool",
    "chunked_mode",
    "prefix_cache",
    "pins",
    "shared_prefixes",
    "near_limits",
    "branches",
    "sampling",
    "penalties",
    "stops",
    "eos",
    "logprobs",
    "text",
    "grammar",
    "grammar_fails",
    "id_reuse",
    "invalid",
    "deadlines",
    "priorities",
    "queue_limit",
    "aborts",
    "end_all",
    "callback_throws",
    "callback_calls",
    "forward_fails",
    "sequence_fails",
    "poison_tokens",
    "copy_fails",
    "allocation_fails",
    "run_ahead",
    "sample_fails",
    "collect_fails",
    "jump_forward",
    "pin_calls",
    "prompt_logprobs",
    "speculation",
    "predictions",
    "adversarial_drafts",
    "draft_model",
    "token_limits",
    "past_answers",
    "slow_grammars",
    "many_answers",
    "output_options",
    "allowed_tokens",
    "salts",
    "trace",
    "given_up",
    "recurrent",
    "recurrent_drafts",
    "adapters",
    "embeddings",
    "input_rows",
    "whole_prompts",
};

// Things that end requests in numbers are rare, or nothing else would be seen.
double MaxRate(Feature feature) {
  switch (feature) {
    case Feature::kEndAll:
      return 0.02;
    case Feature::kForwardFails:
    case Feature::kAllocationFails:
    case Feature::kSequenceFails:
    case Feature::kGrammarFails:
    case Feature::kSampleFails:
    case Feature::kCollectFails:
      return 0.1;
    case Feature::kAborts:
    case Feature::kCallbackThrows:
    case Feature::kCallbackCalls:
    case Feature::kInvalid:
    case Feature::kPinCalls:
    case Feature::kManyAnswers:
    case Feature::kGivenUp:
      return 0.3;
    case Feature::kCopyFails:  // few steps copy pages
      return 0.5;
    default:
      return 1;
  }
}

void DrawRates(SimRandom rng, const FeatureSet& allowed, Scenario* scenario) {
  // Some mistakes need four or five features together, which half of all features seldom has.
  const double part_on = rng.Pick(std::vector<double>{0.3, 0.5, 0.8});
  for (size_t i = 0; i < kNumFeatures; ++i) {
    SimRandom own = rng.Fork(i);  // the others do not shift when one is not allowed
    const bool on = own.Chance(part_on);
    const double rate = MaxRate(static_cast<Feature>(i)) * (0.05 + 0.95 * own.Uniform());
    if (on && allowed[i]) scenario->rates[i] = rate;
  }
}

void DrawModel(SimRandom rng, Scenario* scenario) {
  const std::vector<int64_t> sizes = {2, 3, 7, 32, 33, 257};
  testing::FakeModelOptions& model = scenario->model;
  model.vocab_size = rng.Pick(sizes);
  model.run_ahead = scenario->has(Feature::kRunAhead);
  model.is_recurrent = scenario->has(Feature::kRecurrent);
  model.peak = rng.Chance(0.5) ? 12.0f : 2.0f;  // how far sampled answers stray
  const auto any_token = [&] { return static_cast<int32_t>(rng.Range(0, model.vocab_size - 1)); };
  if (scenario->has(Feature::kEos)) {
    for (int64_t i = rng.Range(1, 2); i > 0; --i) scenario->eos_token_ids.push_back(any_token());
  }
  if (scenario->has(Feature::kPoisonTokens) && model.vocab_size > 100) {
    model.poison_token = any_token();
    model.nan_token = any_token();
  }
  if (scenario->has(Feature::kGrammar) && scenario->has(Feature::kJumpForward)) {
    scenario->vocabulary = DrawMerges(rng.Fork(1), model.vocab_size);
  } else if (scenario->has(Feature::kText) || scenario->has(Feature::kGrammar)) {
    scenario->vocabulary = DrawPieces(rng.Fork(1), model.vocab_size);
  }
}

// Half of the models with rows compute them at once, if a step has room for some.
void DrawInputRows(SimRandom rng, Scenario* scenario) {
  scenario->model.whole_rows = scenario->has(Feature::kInputRows) && rng.Chance(0.5);
}

void DrawEmbeddings(SimRandom rng, Scenario* scenario) {
  if (!scenario->has(Feature::kEmbeddings)) return;
  scenario->model.gives_states = true;
  scenario->embedding.pooling = rng.Chance(0.5) ? Pooling::kMean : Pooling::kLast;
  scenario->embedding.normalize = rng.Chance(0.5);
}

void DrawSizes(SimRandom rng, Scenario* scenario) {
  EngineConfig& config = scenario->config;
  const bool tiny = scenario->has(Feature::kTinyPool);
  const int64_t num_pages = tiny ? rng.LogRange(1, 12) : rng.LogRange(8, 200);
  config.max_total_sequence_length =
      num_pages * kKvPageSize - (rng.Chance(0.5) ? rng.Range(0, kKvPageSize - 1) : 0);
  config.max_single_sequence_length = rng.Chance(0.5)
                                          ? rng.Range(1, 2 * *config.max_total_sequence_length)
                                          : *config.max_total_sequence_length + rng.Range(-2, 2);
  config.max_single_sequence_length =
      std::clamp<int64_t>(*config.max_single_sequence_length, 1, 700);
  scenario->model.context_window_size = scenario->max_sequence_length();
  config.max_num_sequence = rng.LogRange(1, 12);
  const int64_t least = *config.max_num_sequence;
  config.prefill_chunk_size =
      rng.Chance(0.3)   ? least + rng.Range(0, 1)
      : rng.Chance(0.5) ? std::max(least, rng.Range(1, 4) * kKvPageSize + rng.Range(-1, 1))
                        : rng.LogRange(least, 1024);
  config.prefill_mode =
      scenario->has(Feature::kChunkedMode) ? PrefillMode::kChunked : PrefillMode::kHybrid;
}

// Makes the draft model a draft head.
void DrawDraftHead(SimRandom& rng, Scenario* scenario) {
  scenario->config.speculative_mode = SpeculativeMode::kEagle3;
  scenario->model.gives_states = true;
  if (rng.Chance(0.5)) {
    const int64_t window = rng.Range(1, 2);
    if (!scenario->model.is_recurrent) scenario->model.history_window = window;
  }
  testing::FakeModelOptions& head = *scenario->draft_model;
  head.is_draft_head = true;
  head.is_recurrent = false;
  head.vocab_size = scenario->model.vocab_size;
  head.history_window = rng.Range(1, 2);
}

void DrawSpeculation(SimRandom rng, Scenario* scenario) {
  if (!scenario->has(Feature::kSpeculation)) return;
  EngineConfig& config = scenario->config;
  config.speculative_mode = SpeculativeMode::kNGram;
  config.spec_draft_length = rng.Chance(0.5) ? 0 : rng.Range(1, 10);
  config.prompt_lookup_min = rng.Range(1, 3);
  config.prompt_lookup_max = config.prompt_lookup_min + rng.Range(0, 4);
  if (scenario->has(Feature::kPastAnswers)) {
    config.speculative_mode = SpeculativeMode::kSuffix;
    config.suffix_cache_bytes = rng.Fork(1).LogRange(4096, 1 << 16);
  }
  if (!scenario->has(Feature::kDraftModel)) return;
  config.speculative_mode = SpeculativeMode::kSmallDraft;
  testing::FakeModelOptions& draft = scenario->draft_model.emplace(scenario->model);
  if (rng.Chance(0.3)) draft.history_window = rng.Range(1, 8);
  if (rng.Chance(0.3)) draft.context_window_size = rng.LogRange(1, 700);
  if (rng.Chance(0.3)) draft.vocab_size = std::max<int64_t>(1, draft.vocab_size - rng.Range(1, 3));
  // Steps of both in flight are what lets the device verify guesses.
  draft.run_ahead = rng.Chance(scenario->model.run_ahead ? 0.8 : 0.3);
  for (int64_t i = rng.Range(0, 20); i > 0; --i) {
    draft.fail_at_forward.push_back(rng.LogRange(1, 2000));
  }
  draft.is_recurrent = scenario->has(Feature::kRecurrentDrafts) && draft.history_window == 0;
  if (rng.Chance(0.4)) DrawDraftHead(rng, scenario);
}

void DrawPrefixCache(SimRandom rng, Scenario* scenario) {
  EngineConfig& config = scenario->config;
  const bool on = scenario->has(Feature::kPrefixCache);
  config.prefix_cache_mode = on ? PrefixCacheMode::kRadix : PrefixCacheMode::kDisable;
  config.prefix_cache_max_num_recycling_seqs = rng.Chance(0.6) ? -1 : rng.LogRange(0, 10);
}

// Steps compute whole prompts, of which nothing is cached and which nothing follows.
// Seldom, since such a model answers nothing.
void DrawWholePrompts(SimRandom rng, Scenario* scenario) {
  if (!scenario->has(Feature::kWholePrompts) || !scenario->has(Feature::kEmbeddings)) return;
  if (!rng.Chance(0.3)) return;
  for (const Feature feature : {Feature::kRecurrent, Feature::kInputRows, Feature::kPrefixCache,
                                Feature::kSpeculation, Feature::kPins}) {
    scenario->rates[static_cast<size_t>(feature)] = 0;
  }
  testing::FakeModelOptions& model = scenario->model;
  model.whole_prompts = true;
  model.is_recurrent = model.whole_rows = false;
  EngineConfig& config = scenario->config;
  config.max_single_sequence_length =
      std::min(*config.max_single_sequence_length, *config.prefill_chunk_size);
  model.context_window_size = scenario->max_sequence_length();
}

void DrawService(SimRandom rng, Scenario* scenario) {
  EngineConfig& config = scenario->config;
  if (scenario->has(Feature::kQueueLimit)) config.max_queue_length = rng.LogRange(1, 20);
  if (!scenario->has(Feature::kDeadlines)) return;
  if (rng.Chance(0.3)) config.timeout_s = DrawSeconds(rng);
  if (rng.Chance(0.3)) config.queue_timeout_s = DrawSeconds(rng);
}

}  // namespace

double DrawSeconds(SimRandom& rng) { return static_cast<double>(rng.LogRange(1, 2000)) / 100; }

const char* NameOf(Feature feature) { return kFeatureNames[static_cast<size_t>(feature)]; }

Feature FeatureOf(const std::string& name) {
  const auto found = std::find(kFeatureNames.begin(), kFeatureNames.end(), name);
  if (found != kFeatureNames.end()) return static_cast<Feature>(found - kFeatureNames.begin());
  std::string message = "there is no feature \"" + name + "\"; there are";
  for (const char* known : kFeatureNames) message += std::string(" ") + known;
  throw std::invalid_argument(message);
}

FeatureSet AllFeatures() {
  FeatureSet all;
  all.fill(true);
  return all;
}

int64_t Scenario::max_sequence_length() const {
  return std::min(*config.max_single_sequence_length, *config.max_total_sequence_length);
}

std::string Scenario::Describe() const {
  std::ostringstream out;
  out << "seed " << seed << ": vocabulary " << model.vocab_size << ", total "
      << *config.max_total_sequence_length << " and single " << *config.max_single_sequence_length
      << " tokens, " << *config.max_num_sequence << " sequences, chunks of "
      << *config.prefill_chunk_size << ", " << num_steps << " steps, " << arrivals_per_step
      << " arrivals per step in bursts of up to " << max_burst << ";";
  for (size_t i = 0; i < kNumFeatures; ++i) {
    if (rates[i] > 0) out << ' ' << kFeatureNames[i] << '=' << rates[i];
  }
  return out.str();
}

Scenario DrawScenario(uint64_t seed, const FeatureSet& allowed) {
  Scenario scenario;
  scenario.seed = seed;
  const SimRandom rng(seed);
  DrawRates(rng.Fork(1), allowed, &scenario);
  DrawModel(rng.Fork(2), &scenario);
  DrawEmbeddings(rng.Fork(12), &scenario);
  DrawInputRows(rng.Fork(13), &scenario);
  DrawSizes(rng.Fork(3), &scenario);
  DrawWholePrompts(rng.Fork(14), &scenario);
  DrawService(rng.Fork(8), &scenario);
  DrawPrefixCache(rng.Fork(9), &scenario);
  DrawSpeculation(rng.Fork(11), &scenario);
  SimRandom arrivals = rng.Fork(4);
  scenario.num_steps = arrivals.LogRange(50, 1500);
  scenario.max_burst = arrivals.Chance(0.5) ? 1 : arrivals.LogRange(1, 20);
  const double requests_per_step = (arrivals.Chance(0.5) ? 0.1 : 1) * (0.1 + arrivals.Uniform());
  scenario.arrivals_per_step =
      requests_per_step / (0.5 + 0.5 * static_cast<double>(scenario.max_burst));
  return scenario;
}

}  // namespace mlc_native::sim
