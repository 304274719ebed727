// GenerationConfig: how one request is generated. Plain values with defaults; any thread.
//
// A field is declared twice in this file, as a member and in VisitGenerationFields, and nowhere
// else: checks, JSON and Python's properties derive from that. A wrong value is an InvalidRequest
// that names the field, the value and the range; it is found when the request is created, against
// the vocabulary of the model that is loaded.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mlc_native/detail/export.h"
#include "mlc_native/detail/field.h"

namespace mlc_native {

enum class ResponseFormatType {
  kText,  // anything
  kJsonObject,
  kJsonSchema,
  kRegex,
  kGrammar,  // EBNF
  kChoice,
  kStructuralTag
};
template <>
MLC_NATIVE_HIDDEN inline constexpr auto kEnumNames<ResponseFormatType> =
    std::to_array<EnumName<ResponseFormatType>>(
        {{"text", ResponseFormatType::kText},
         {"json_object", ResponseFormatType::kJsonObject},
         {"json_schema", ResponseFormatType::kJsonSchema},
         {"regex", ResponseFormatType::kRegex},
         {"grammar", ResponseFormatType::kGrammar},
         {"choice", ResponseFormatType::kChoice},
         {"structural_tag", ResponseFormatType::kStructuralTag}});

constexpr const char* ToString(ResponseFormatType type) { return NameOf(type); }
// Throws InvalidRequest for an unknown name.
MLC_NATIVE_API ResponseFormatType ParseResponseFormatType(const std::string& name);

// What an answer must look like. All but kText becomes a grammar when the request is created.
struct ResponseFormat {
  ResponseFormatType type = ResponseFormatType::kText;
  std::string text;                  // the JSON schema, regex, EBNF grammar or structural tag
  std::vector<std::string> choices;  // kChoice: the answers there are, >= 1
  bool strict = true;                // kJsonSchema: nothing that the schema does not list

  bool is_constrained() const { return type != ResponseFormatType::kText; }
};

enum class RequestPriority { kHigh, kNormal, kLow };
template <>
MLC_NATIVE_HIDDEN inline constexpr auto kEnumNames<RequestPriority> =
    std::to_array<EnumName<RequestPriority>>({{"high", RequestPriority::kHigh},
                                              {"normal", RequestPriority::kNormal},
                                              {"low", RequestPriority::kLow}});

// Throws InvalidRequest for an unknown name.
MLC_NATIVE_API RequestPriority ParsePriority(const std::string& name);

struct DebugConfig {
  bool ignore_eos = false;
  bool pinned_system_prompt = false;
  std::string special_request;  // "" or "query_engine_metrics"
  std::string grammar_execution_mode = "jump_forward";
};

// A bias of the logit of a token.
using LogitBias = std::vector<std::pair<int32_t, double>>;

struct MLC_NATIVE_API GenerationConfig {
  int32_t n = 1;
  int64_t max_tokens = -1;
  int64_t min_tokens = 0;
  std::vector<std::string> stop_strs;
  std::vector<int32_t> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  std::optional<int64_t> truncate_prompt_tokens;
  ResponseFormat response_format;

  // Applied in this order: logit_bias, penalties, temperature, top_k, top_p, min_p.
  double temperature = 1.0;
  double top_p = 1.0;
  int32_t top_k = 0;
  double min_p = 0.0;
  double frequency_penalty = 0.0;
  double presence_penalty = 0.0;
  double repetition_penalty = 1.0;
  LogitBias logit_bias;
  std::vector<int32_t> allowed_token_ids;
  std::vector<std::vector<int32_t>> bad_words;
  int64_t no_repeat_ngram_size = 0;
  std::optional<int64_t> seed;

  bool logprobs = false;
  int32_t top_logprobs = 0;
  std::optional<int64_t> prompt_logprobs;

  // Times are counted from the submission.
  RequestPriority priority = RequestPriority::kNormal;
  std::optional<double> queue_timeout_s;
  std::optional<double> timeout_s;
  int64_t cache_salt = 0;
  std::string adapter;
  bool speculative = true;
  std::optional<int64_t> spec_draft_length;
  std::vector<int32_t> prediction;

  DebugConfig debug_config;

  // Throws InvalidRequest. Token ids are checked against vocab_size.
  void Validate(int64_t vocab_size) const;
  std::string AsJSONString() const;
};

template <typename Visitor>
void VisitDebugFields(Visitor&& visit) {
  static constexpr const char* kModes[] = {"constraint", "jump_forward"};
  visit(Field{"ignore_eos",
              "the model's end-of-sequence ids do not stop; stop strings and `stop_token_ids` "
              "still do."},
        &DebugConfig::ignore_eos);
  visit(Field{"pinned_system_prompt",
              "pin the prompt in the prefix cache; `pinned_prefixes` lists it and `unpin_prefix` "
              "releases it. A prompt that exceeds the room for pins is refused. When other pins "
              "have taken the room, the request is served without a pin: "
              "`usage.extra[\"pinned_tokens\"]` is the length of the prompt or 0."},
        &DebugConfig::pinned_system_prompt);
  visit(Field{"special_request",
              "\"query_engine_metrics\" answers with the engine's metrics in the usage chunk "
              "(`usage.extra`); needs streaming with `include_usage`."},
        &DebugConfig::special_request);
  visit(Field{"grammar_execution_mode",
              "how a grammar is applied: \"jump_forward\" or \"constraint\".",
              {},
              kModes},
        &DebugConfig::grammar_execution_mode);
}

// What shapes an answer, and where it ends.
template <typename Visitor>
void VisitAnswerFields(Visitor&& visit) {
  visit(Field{"n", "number of answers, >= 1.", AtLeast(1, "should be at least 1")},
        &GenerationConfig::n);
  visit(Field{"max_tokens",
              "tokens per answer; -1 is unlimited, 0 an empty answer. None: max_new_tokens of the "
              "model's generation_config.json, else unlimited.",
              AtLeast(-1, "should be at least -1 (-1 is unlimited, 0 an empty answer)")},
        &GenerationConfig::max_tokens);
  visit(Field{"min_tokens",
              "tokens that an answer has at least, >= 0: before, no end-of-sequence token and no "
              "token of `stop_token_ids` is drawn, and stop strings are looked for in the text "
              "behind them.",
              AtLeast(0, "should be at least 0")},
        &GenerationConfig::min_tokens);
  visit(Field{"stop_strs", "texts at which an answer ends; not part of the answer."},
        &GenerationConfig::stop_strs);
  visit(
      Field{"stop_token_ids",
            "tokens at which an answer ends; not part of the answer. An empty list leaves only the "
            "model's end-of-sequence ids, which `ignore_eos` turns off."},
      &GenerationConfig::stop_token_ids);
  visit(Field{"include_stop_str_in_output",
              "the stop string or stop token that ends an answer is part of it."},
        &GenerationConfig::include_stop_str_in_output);
  visit(Field{"skip_special_tokens", "special tokens add nothing to the text of an answer."},
        &GenerationConfig::skip_special_tokens);
  visit(Field{"truncate_prompt_tokens", "use only this many of the prompt's last tokens, >= 1.",
              AtLeast(1, "should be at least 1")},
        &GenerationConfig::truncate_prompt_tokens);
  visit(Field{"response_format", "what the answer must look like."},
        &GenerationConfig::response_format);
}

template <typename Visitor>
void VisitSamplingFields(Visitor&& visit) {
  visit(Field{"temperature", "[0, inf); below 1e-5 is greedy.",
              AtLeast(0, "should be non-negative and finite")},
        &GenerationConfig::temperature);
  visit(Field{"top_p", "[0, 1], the most likely tokens that have this probability together.",
              Between(0, 1, "should be in range [0, 1]")},
        &GenerationConfig::top_p);
  visit(Field{"top_k", "the k most likely tokens; 0 is off.",
              AtLeast(-1, "should be at least -1 (-1 and 0 are off)")},
        &GenerationConfig::top_k);
  visit(Field{"min_p", "[0, 1], relative to the most likely token.",
              Between(0, 1, "should be in range [0, 1]")},
        &GenerationConfig::min_p);
  visit(Field{"frequency_penalty", "[-2, 2], per occurrence of a token in the answer.",
              Between(-2, 2, "should be in range [-2, 2]")},
        &GenerationConfig::frequency_penalty);
  visit(Field{"presence_penalty", "[-2, 2], once for each token of the answer.",
              Between(-2, 2, "should be in range [-2, 2]")},
        &GenerationConfig::presence_penalty);
  visit(Field{"repetition_penalty", "(0, inf), divides the logits of tokens of the answer.",
              FieldRange{.low = 0, .above_low = true, .words = "must be positive and finite"}},
        &GenerationConfig::repetition_penalty);
  visit(Field{"logit_bias", "token id -> [-100, 100].", Between(-100, 100)},
        &GenerationConfig::logit_bias);
  visit(Field{"allowed_token_ids", "the only tokens that an answer may have; not empty."}
            .ForbidsTokens(),
        &GenerationConfig::allowed_token_ids);
  visit(Field{"bad_words",
              "texts that an answer never has, as the tokens that the tokenizer makes of them at "
              "the beginning of a text and behind a space."}
            .ForbidsTokens(),
        &GenerationConfig::bad_words);
  visit(Field{"no_repeat_ngram_size",
              "no sequence of this many tokens occurs twice in the prompt and the answer, as in "
              "transformers; 0 is off.",
              AtLeast(0, "should be at least 0 (0 is off)")}
            .ForbidsTokens(),
        &GenerationConfig::no_repeat_ngram_size);
  visit(Field{"seed", "of the draws; None draws one."}, &GenerationConfig::seed);
  visit(Field{"logprobs", "report the log probability of each token."},
        &GenerationConfig::logprobs);
  visit(Field{"top_logprobs", "and of this many alternatives, [0, 20].",
              Between(0, 20,
                      "must be in range [0, 20]: At most 20 top logprob tokens are supported")},
        &GenerationConfig::top_logprobs);
  visit(Field{"prompt_logprobs",
              "report the log probability of each token of the prompt but the first, and of this "
              "many alternatives, [0, 20]. The prompt is computed without the prefix cache.",
              Between(0, 20, "must be in range [0, 20]")},
        &GenerationConfig::prompt_logprobs);
}

template <typename Visitor>
void VisitServiceFields(Visitor&& visit) {
  visit(Field{"priority",
              "\"high\" requests are started before waiting \"normal\" ones, and those before "
              "\"low\" ones; each waiting request is overtaken by only a few. First come, first "
              "served among equals."},
        &GenerationConfig::priority);
  visit(Field{"queue_timeout_s",
              "seconds from the submission until work on the request must have started, (0, 1e9]. "
              "Else it ends with finish reason \"timeout\".",
              PositiveUpTo(kMaxTimeoutSeconds, "must be in (0, 1e9] seconds")},
        &GenerationConfig::queue_timeout_s);
  visit(Field{"timeout_s",
              "seconds until its end, (0, 1e9]. It ends with \"timeout\" and what it has by then.",
              PositiveUpTo(kMaxTimeoutSeconds, "must be in (0, 1e9] seconds")},
        &GenerationConfig::timeout_s);
  visit(Field{"cache_salt",
              "a secret text: prompts find only what the prefix cache has of requests with the "
              "same one, so others cannot find out by the times of answers what it has. None: what "
              "it has of requests without one."},
        &GenerationConfig::cache_salt);
  visit(Field{"adapter",
              "the name of an adapter (LoRA) that is loaded beside the model; \"\": the model "
              "alone."},
        &GenerationConfig::adapter);
  visit(
      Field{
          "speculative",
          "whether tokens of the answer may be guessed ahead; the answer is the same either way."},
      &GenerationConfig::speculative);
  visit(Field{"spec_draft_length",
              "guesses per step, [1, 10], at most the engine's; 0: as many as pay. None: the "
              "engine's.",
              Between(0, 10, "must be in range [0, 10]")},
        &GenerationConfig::spec_draft_length);
  visit(Field{"prediction",
              "a text that the answer is expected to repeat in large parts, such as the file that "
              "it edits. It makes the answer come faster and never changes it."},
        &GenerationConfig::prediction);
}

// Calls visit(Field, member) for each field of a GenerationConfig.
template <typename Visitor>
void VisitGenerationFields(Visitor&& visit) {
  VisitAnswerFields(visit);
  VisitSamplingFields(visit);
  VisitServiceFields(visit);
  visit(Field{"debug_config", "options outside of OpenAI's."}, &GenerationConfig::debug_config);
}

}  // namespace mlc_native
