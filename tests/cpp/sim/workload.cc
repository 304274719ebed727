#include "sim/workload.h"

#include <algorithm>
#include <utility>

#include "support/page.h"

namespace mlc_native::sim {
namespace {

constexpr int64_t kNear = 10;  // tokens

}  // namespace

int64_t Workload::DrawLength(SimRandom& rng) const {
  const int64_t limit = scenario_.max_sequence_length();
  int64_t length = rng.Chance(0.5) ? rng.Range(1, 12) : rng.LogRange(1, limit);
  if (Happens(rng, Feature::kNearLimits)) {
    const std::vector<int64_t> edges = {limit, *scenario_.config.prefill_chunk_size,
                                        rng.Range(1, 4) * kKvPageSize};
    length = rng.Pick(edges) + rng.Range(-kNear, 2);
  }
  return std::clamp<int64_t>(length, 1, limit);
}

int32_t Workload::DrawToken(SimRandom& rng) const {
  return static_cast<int32_t>(rng.Range(0, scenario_.model.vocab_size - 1));
}

std::vector<int32_t> Workload::DrawPrompt(SimRandom& rng) const {
  const int64_t length = DrawLength(rng);
  std::vector<int32_t> prompt;
  // A cache that is never hit would not be tested.
  const double shared = std::max(scenario_.rate(Feature::kSharedPrefixes),
                                 0.7 * scenario_.rate(Feature::kPrefixCache));
  if (!remembered_.empty() && rng.Chance(shared)) {
    prompt = rng.Pick(remembered_);
    const int64_t page = rng.Range(0, std::ssize(prompt) / kKvPageSize) * kKvPageSize;
    const int64_t cut = rng.Chance(0.3)   ? std::ssize(prompt)
                        : rng.Chance(0.5) ? rng.Range(0, std::ssize(prompt))
                                          : page + rng.Range(-1, 1);
    prompt.resize(std::clamp<int64_t>(cut, 0, std::ssize(prompt)));
    // Mostly a little more than what is known, sometimes the drawn length.
    if (rng.Chance(0.7)) {
      for (int64_t i = rng.Range(0, 20); i > 0; --i) prompt.push_back(DrawToken(rng));
      if (prompt.empty()) prompt.push_back(DrawToken(rng));
      prompt.resize(std::min<size_t>(prompt.size(), scenario_.max_sequence_length()));
      return prompt;
    }
  }
  if (std::ssize(prompt) > length) prompt.resize(length);
  while (std::ssize(prompt) < length) prompt.push_back(DrawToken(rng));
  return prompt;
}

int64_t Workload::DrawMaxTokens(SimRandom& rng, int64_t prompt_len) const {
  const int64_t left = scenario_.max_sequence_length() - prompt_len;
  if (Happens(rng, Feature::kNearLimits)) {
    return rng.Chance(0.3) ? rng.Range(-1, 2)
                           : std::max<int64_t>(-1, left + rng.Range(-kNear, kNear));
  }
  return rng.Chance(0.1) ? -1 : rng.LogRange(1, 60);
}

void Workload::DrawDistribution(SimRandom& rng, GenerationConfig* config) const {
  config->seed = rng.Range(0, 1 << 20);
  config->temperature = 0;
  if (!Happens(rng, Feature::kSampling)) return;
  config->temperature = rng.Chance(0.5) ? 1.0 : 3.0 * rng.Uniform();
  if (rng.Chance(0.3)) config->top_p = rng.Uniform();
  if (rng.Chance(0.3)) config->top_k = static_cast<int32_t>(rng.Range(-1, 5));
  if (rng.Chance(0.3)) config->min_p = rng.Uniform();
}

void Workload::DrawPenalties(SimRandom& rng, GenerationConfig* config) const {
  if (!Happens(rng, Feature::kPenalties)) return;
  if (rng.Chance(0.5)) config->frequency_penalty = 4 * rng.Uniform() - 2;
  if (rng.Chance(0.5)) config->presence_penalty = 4 * rng.Uniform() - 2;
  if (rng.Chance(0.5)) config->repetition_penalty = 0.1 + 2 * rng.Uniform();
  for (int64_t i = rng.Range(0, 3); i > 0; --i) {
    config->logit_bias.emplace_back(DrawToken(rng), 20 * rng.Uniform() - 10);
  }
}

void Workload::DrawStops(SimRandom& rng, GenerationConfig* config) const {
  config->debug_config.ignore_eos = rng.Chance(0.2);
  if (!Happens(rng, Feature::kStops)) return;
  if (rng.Chance(0.5)) config->stop_token_ids.push_back(DrawToken(rng));
  if (scenario_.token_table == nullptr || rng.Chance(0.3)) return;
  const std::vector<std::string> pieces = {"a", "b", "c", " ", "\xc3\xa9"};
  for (int64_t i = rng.Range(1, 3); i > 0; --i) {
    std::string stop;
    for (int64_t length = rng.Range(1, 5); length > 0; --length) stop += rng.Pick(pieces);
    config->stop_strs.push_back(std::move(stop));
  }
}

void Workload::DrawService(SimRandom& rng, GenerationConfig* config) const {
  if (Happens(rng, Feature::kDeadlines)) {
    if (rng.Chance(0.5)) config->timeout_s = DrawSeconds(rng);
    if (rng.Chance(0.5)) config->queue_timeout_s = DrawSeconds(rng);
  }
  if (!Happens(rng, Feature::kPriorities)) return;
  config->priority = rng.Chance(0.5) ? RequestPriority::kHigh : RequestPriority::kLow;
}

// In the language of testing/fake_grammar.h, of letters that tokens have.
void Workload::DrawGrammar(SimRandom& rng, GenerationConfig* config) const {
  if (!Happens(rng, Feature::kGrammar)) return;
  const std::vector<std::string> grammars = {"*", "ab*",    "ab|abc|ba",    "aaaaaaaaaa|aaaab",
                                             "c", "a*|ab*", "abcabcabcab*", "bab|babbab|c"};
  config->response_format.type = ResponseFormatType::kRegex;
  config->response_format.text = rng.Pick(grammars);
  if (rng.Chance(0.3)) config->debug_config.grammar_execution_mode = "constraint";
}

GenerationConfig Workload::DrawGeneration(SimRandom& rng, int64_t prompt_len) const {
  GenerationConfig config;
  config.max_tokens = DrawMaxTokens(rng, prompt_len);
  if (Happens(rng, Feature::kBranches)) {
    config.n = static_cast<int32_t>(rng.LogRange(1, *scenario_.config.max_num_sequence));
  }
  DrawDistribution(rng, &config);
  DrawPenalties(rng, &config);
  DrawStops(rng, &config);
  DrawService(rng, &config);
  DrawGrammar(rng, &config);
  config.debug_config.pinned_system_prompt = Happens(rng, Feature::kPins) && rng.Chance(0.2);
  config.logprobs = Happens(rng, Feature::kLogprobs);
  if (config.logprobs) config.top_logprobs = static_cast<int32_t>(rng.Range(0, 5));
  return config;
}

void Workload::Remember(std::vector<int32_t> tokens, SimRandom& rng) {
  if (tokens.empty()) return;
  if (remembered_.size() < kMaxRemembered) return remembered_.push_back(std::move(tokens));
  remembered_[rng.Next() % kMaxRemembered] = std::move(tokens);
}

}  // namespace mlc_native::sim
