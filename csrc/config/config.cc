#include "config/config.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "support/error.h"
#include "support/utf8.h"

namespace mlc_native {
namespace {

// The limits of StopStrSet, which is of a higher level; request_test.cc holds them together.
constexpr size_t kMaxStopStrs = 1024;
constexpr size_t kMaxStopStrBytes = 65536;
constexpr int32_t kMaxTopLogprobs = 20;

constexpr std::pair<const char*, ResponseFormatType> kResponseFormatTypes[] = {
    {"text", ResponseFormatType::kText},
    {"json_object", ResponseFormatType::kJsonObject},
    {"json_schema", ResponseFormatType::kJsonSchema},
    {"regex", ResponseFormatType::kRegex},
    {"grammar", ResponseFormatType::kGrammar},
    {"choice", ResponseFormatType::kChoice},
    {"structural_tag", ResponseFormatType::kStructuralTag}};

// Throws "<what>, got <value>". `what` keeps the ancestor's words where it had any.
template <typename Value>
void Require(bool ok, const char* field, const std::string& what, const Value& value) {
  if (ok) return;
  std::ostringstream message;
  message << what << ", got " << value;
  throw InvalidRequest(field, message.str());
}

bool InRange(double value, double low, double high) { return value >= low && value <= high; }

void CheckTimeout(const char* field, const std::optional<double>& seconds) {
  Require(!seconds || (*seconds > 0 && *seconds <= kMaxTimeoutSeconds), field,
          '"' + std::string(field) + "\" must be in (0, 1e9] seconds", seconds.value_or(0));
}

void CheckTokenId(const char* field, int64_t token_id, int64_t vocab_size) {
  Require(token_id >= 0 && token_id < vocab_size, field,
          '"' + std::string(field) + "\" must hold token ids in [0, " + std::to_string(vocab_size) +
              ')',
          token_id);
}

void CheckDistribution(const GenerationConfig& config) {
  Require(config.temperature >= 0 && std::isfinite(config.temperature), "temperature",
          "\"temperature\" should be non-negative and finite", config.temperature);
  Require(InRange(config.top_p, 0, 1), "top_p", "\"top_p\" should be in range [0, 1]",
          config.top_p);
  Require(config.top_k >= -1, "top_k", "\"top_k\" should be at least -1 (-1 and 0 are off)",
          config.top_k);
  Require(InRange(config.min_p, 0, 1), "min_p", "\"min_p\" should be in range [0, 1]",
          config.min_p);
  Require(InRange(config.frequency_penalty, -2, 2), "frequency_penalty",
          "\"frequency_penalty\" should be in range [-2, 2]", config.frequency_penalty);
  Require(InRange(config.presence_penalty, -2, 2), "presence_penalty",
          "\"presence_penalty\" should be in range [-2, 2]", config.presence_penalty);
  Require(config.repetition_penalty > 0 && std::isfinite(config.repetition_penalty),
          "repetition_penalty", "\"repetition_penalty\" must be positive and finite",
          config.repetition_penalty);
}

void CheckTokens(const GenerationConfig& config, int64_t vocab_size) {
  for (const auto& [token_id, bias] : config.logit_bias) {
    CheckTokenId("logit_bias", token_id, vocab_size);
    Require(InRange(bias, -100, 100), "logit_bias",
            "Logit bias value should be in range [-100, 100]", bias);
  }
  for (int32_t token_id : config.stop_token_ids) {
    CheckTokenId("stop_token_ids", token_id, vocab_size);
  }
}

void CheckStopStrs(const std::vector<std::string>& stop_strs) {
  Require(stop_strs.size() <= kMaxStopStrs, "stop_strs",
          "\"stop_strs\" holds at most " + std::to_string(kMaxStopStrs) + " strings",
          stop_strs.size());
  size_t num_bytes = 0;
  for (size_t i = 0; i < stop_strs.size(); ++i) {
    Require(!stop_strs[i].empty(), "stop_strs",
            "Invalid stop string in stop_strs: must not be empty",
            "\"\" at index " + std::to_string(i));
    num_bytes += stop_strs[i].size();
  }
  Require(num_bytes <= kMaxStopStrBytes, "stop_strs",
          "\"stop_strs\" holds at most " + std::to_string(kMaxStopStrBytes) + " bytes in total",
          num_bytes);
}

void CheckLogprobs(const GenerationConfig& config) {
  Require(config.top_logprobs >= 0 && config.top_logprobs <= kMaxTopLogprobs, "top_logprobs",
          "\"top_logprobs\" must be in range [0, 20]: At most 20 top logprob tokens are supported",
          config.top_logprobs);
  Require(config.logprobs || config.top_logprobs == 0, "top_logprobs",
          "\"logprobs\" must be true to support \"top_logprobs\"", config.top_logprobs);
}

void CheckResponseFormat(const ResponseFormat& format) {
  const auto refuse = [](const std::string& message) {
    throw InvalidRequest("response_format", message);
  };
  const std::string type = std::string("response_format type \"") + ToString(format.type) + '"';
  const bool is_choice = format.type == ResponseFormatType::kChoice;
  const bool needs_text = !is_choice && format.type != ResponseFormatType::kText &&
                          format.type != ResponseFormatType::kJsonObject;
  if (needs_text && format.text.empty()) refuse(type + " needs a text, got \"\"");
  if (!needs_text && !format.text.empty()) refuse(type + " takes no text");
  if (is_choice && format.choices.empty()) refuse(type + " needs at least 1 choice, got 0");
  if (!is_choice && !format.choices.empty()) refuse(type + " takes no choices");
  const auto is_utf8 = [](const std::string& text) { return IsValidUtf8(text); };
  if (!is_utf8(format.text) ||
      !std::all_of(format.choices.begin(), format.choices.end(), is_utf8)) {
    refuse(type + ": the text must be valid UTF-8");
  }
}

void CheckDebugConfig(const DebugConfig& debug) {
  if (!debug.special_request.empty() && debug.special_request != "query_engine_metrics") {
    throw InvalidRequest("special_request", "Unknown special request \"" + debug.special_request +
                                                "\"; the only one is \"query_engine_metrics\"");
  }
  if (debug.grammar_execution_mode != "jump_forward" &&
      debug.grammar_execution_mode != "constraint") {
    throw InvalidRequest("grammar_execution_mode", "Unknown grammar execution mode \"" +
                                                       debug.grammar_execution_mode +
                                                       "\"; must be \"jump_forward\" or "
                                                       "\"constraint\"");
  }
}

}  // namespace

const char* ToString(RequestPriority priority) {
  switch (priority) {
    case RequestPriority::kHigh:
      return "high";
    case RequestPriority::kNormal:
      return "normal";
    case RequestPriority::kLow:
      return "low";
  }
  return "invalid";
}

const char* ToString(ResponseFormatType type) {
  for (const auto& [name, candidate] : kResponseFormatTypes) {
    if (candidate == type) return name;
  }
  return "invalid";
}

RequestPriority ParsePriority(const std::string& name) {
  using enum RequestPriority;
  for (RequestPriority priority : {kHigh, kNormal, kLow}) {
    if (name == ToString(priority)) return priority;
  }
  throw InvalidRequest("priority", OutOfRangeMessage("priority", '"' + name + '"',
                                                     "\"high\", \"normal\" or \"low\""));
}

ResponseFormatType ParseResponseFormatType(const std::string& name) {
  std::string known;
  for (const auto& [candidate, type] : kResponseFormatTypes) {
    if (name == candidate) return type;
    known += (known.empty() ? "\"" : ", \"") + std::string(candidate) + '"';
  }
  throw InvalidRequest("response_format", "Unknown response_format type \"" + name.substr(0, 64) +
                                              "\"; the types are " + known);
}

void GenerationConfig::Validate(int64_t vocab_size) const {
  Require(n >= 1, "n", "\"n\" should be at least 1", n);
  Require(max_tokens >= -1, "max_tokens",
          "\"max_tokens\" should be at least -1 (-1 is unlimited, 0 an empty answer)", max_tokens);
  CheckDistribution(*this);
  CheckTokens(*this, vocab_size);
  CheckStopStrs(stop_strs);
  CheckLogprobs(*this);
  CheckResponseFormat(response_format);
  CheckTimeout("queue_timeout_s", queue_timeout_s);
  CheckTimeout("timeout_s", timeout_s);
  CheckDebugConfig(debug_config);
}

}  // namespace mlc_native
