#include "sim/workload.h"

#include <algorithm>
#include <utility>

#include "mlc_native/detail/page.h"
#include "sim/input_rows.h"

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
    const auto& [tokens, prompt_len] = rng.Pick(remembered_);
    prompt = tokens;
    if (rng.Chance(0.2)) {
      prompt.resize(prompt_len);
      return prompt;
    }
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
  if (scenario_.vocabulary.table == nullptr || rng.Chance(0.3)) return;
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

// Long answers, mostly forced: a few that begin alike, or one that is free for its first letters,
// whose tokens are replaced when the rest is forced. There are few of them in a scenario: requests
// that agree in prompt and grammar meet in the prefix cache.
std::string Workload::DrawForcedAnswers(SimRandom& rng) const {
  SimRandom own = SimRandom(scenario_.seed).Fork(10).Fork(rng.Next() % 4);
  const std::vector<char> letters = {'a', 'b', 'c', ' '};
  const auto draw = [&](int64_t length) {
    std::string text;
    while (std::ssize(text) < length) text += own.Pick(letters);
    return text;
  };
  std::vector<std::string> answers;
  if (own.Chance(0.5)) {
    // The first space of a text may be dropped.
    answers = {"c" + draw(own.LogRange(3, 30))};
    for (int64_t i = own.Range(0, 2); i > 0; --i) {
      const std::string& last = answers.back();
      answers.push_back(last.substr(0, own.Range(1, std::ssize(last))) + draw(own.Range(3, 30)));
    }
  } else {
    answers = {""};
    for (int64_t i = own.Range(2, 5); i > 0; --i) {
      for (std::string& answer : answers) answer += 'a';
      const size_t half = answers.size();
      for (size_t k = 0; k < half; ++k) {
        answers.push_back(answers[k]);
        answers.back().back() = 'b';
      }
    }
    const std::string rest = draw(own.Range(4, 20));
    for (std::string& answer : answers) answer += rest;
  }
  std::string all;
  for (const std::string& answer : answers) all += (all.empty() ? "" : "|") + answer;
  return all;
}

// In the language of testing/fake_grammar.h, of letters that tokens have.
void Workload::DrawGrammar(SimRandom& rng, GenerationConfig* config) const {
  if (!Happens(rng, Feature::kGrammar)) return;
  const std::vector<std::string> grammars = {
      "*",      "ab*",          "ab|abc|ba",    "aaaaaaaaaa|aaaab",       "c",
      "a*|ab*", "abcabcabcab*", "bab|babbab|c", "abc abc abc|abc abb a|c"};
  config->response_format.type = ResponseFormatType::kRegex;
  config->response_format.text = scenario_.has(Feature::kJumpForward) && rng.Chance(0.7)
                                     ? DrawForcedAnswers(rng)
                                     : rng.Pick(grammars);
  SimRandom own = rng.Fork(20);
  if (Happens(own, Feature::kSlowGrammars)) {
    config->response_format.text.insert(config->response_format.text.begin(), '~');
  }
  if (!Happens(rng, Feature::kJumpForward)) {
    config->debug_config.grammar_execution_mode = "constraint";
  }
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
  SimRandom own = rng.Fork(static_cast<uint64_t>(*config.seed));
  if (Happens(own, Feature::kPromptLogprobs)) config.prompt_logprobs = own.Range(0, 3);
  DrawSpeculation(own, &config);
  DrawTokenLimits(own, &config);
  SimRandom more = own.Fork(1);
  DrawOutputOptions(more, &config);
  if (Happens(more, Feature::kSalts)) config.cache_salt = more.Range(0, 2);
  if (config.n > 1 && Happens(more, Feature::kManyAnswers)) {
    config.n += static_cast<int32_t>(more.LogRange(1, 3 * *scenario_.config.max_num_sequence));
  }
  return config;
}

void Workload::DrawOutputOptions(SimRandom& rng, GenerationConfig* config) const {
  if (!Happens(rng, Feature::kOutputOptions)) return;
  config->include_stop_str_in_output = rng.Chance(0.5);
  config->skip_special_tokens = rng.Chance(0.5);
  if (rng.Chance(0.3)) config->stop_token_ids.push_back(DrawToken(rng));
}

void Workload::DrawSpeculation(SimRandom& rng, GenerationConfig* config) const {
  if (Happens(rng, Feature::kSpeculation)) {
    config->speculative = rng.Chance(0.8);
    if (rng.Chance(0.3)) config->spec_draft_length = rng.Range(0, 10);
  }
  if (!Happens(rng, Feature::kPredictions)) return;
  // An earlier answer, or anything.
  config->prediction = DrawRemembered(rng);
  for (int64_t i = rng.Range(1, 30); i > 0; --i) config->prediction.push_back(DrawToken(rng));
}

void Workload::DrawTokenLimits(SimRandom& rng, GenerationConfig* config) const {
  if (Happens(rng, Feature::kPastAnswers)) config->cache_salt = rng.Range(0, 2);
  if (config->response_format.is_constrained()) return;
  if (SimRandom own = rng.Fork(2); Happens(own, Feature::kAllowedTokens)) {
    for (int64_t i = own.LogRange(1, scenario_.model.vocab_size); i > 0; --i) {
      config->allowed_token_ids.push_back(DrawToken(own));
    }
  }
  if (!Happens(rng, Feature::kTokenLimits)) return;
  if (rng.Chance(0.5)) {
    for (int64_t i = rng.Range(1, 4); i > 0; --i) {
      std::vector<int32_t>& word = config->bad_words.emplace_back();
      for (int64_t length = rng.Range(1, 3); length > 0; --length) word.push_back(DrawToken(rng));
    }
  }
  if (rng.Chance(0.5)) config->no_repeat_ngram_size = rng.Range(1, 5);
  if (rng.Chance(0.3)) config->min_tokens = rng.Range(0, std::max<int64_t>(config->max_tokens, 0));
}

std::vector<int32_t> Workload::DrawRemembered(SimRandom& rng) const {
  return remembered_.empty() ? std::vector<int32_t>() : TokensInFront(rng.Pick(remembered_).tokens);
}

void Workload::Remember(std::vector<int32_t> prompt, const std::vector<int32_t>& answer,
                        SimRandom& rng) {
  Conversation conversation{.tokens = std::move(prompt)};
  conversation.prompt_len = std::ssize(conversation.tokens);
  conversation.tokens.insert(conversation.tokens.end(), answer.begin(), answer.end());
  if (remembered_.size() < kMaxRemembered) return remembered_.push_back(std::move(conversation));
  remembered_[rng.Next() % kMaxRemembered] = std::move(conversation);
}

}  // namespace mlc_native::sim
