#include "mlc_native/config.h"

#include <algorithm>
#include <concepts>
#include <string>

#include "support/error.h"
#include "support/utf8.h"

namespace mlc_native {
namespace {

// The limits of StopStrSet, which is of a higher level; request_test.cc holds them together.
constexpr size_t kMaxStopStrs = 1024;
constexpr size_t kMaxStopStrBytes = 65536;
constexpr size_t kMaxBadWords = 4096;

// Throws "<what>, got <value>". `what` keeps the ancestor's words where it had any.
template <typename Value>
void Require(bool ok, const char* field, const std::string& what, const Value& value) {
  if (ok) return;
  std::string message = what + ", got ";
  AppendTo(&message, value);
  throw InvalidRequest(field, message);
}

void CheckTokenId(const char* field, int64_t token_id, int64_t vocab_size) {
  Require(token_id >= 0 && token_id < vocab_size, field,
          '"' + std::string(field) + "\" must hold token ids in [0, " + std::to_string(vocab_size) +
              ')',
          token_id);
}

// Checks members of a config by what their fields allow. A vector of int32_t holds token ids.
class FieldChecker {
 public:
  FieldChecker(const GenerationConfig& config, int64_t vocab_size)
      : config_(config), vocab_size_(vocab_size) {}

  template <typename T>
  void operator()(const Field& field, T GenerationConfig::* member) const {
    Check(field, config_.*member);
  }

 private:
  template <typename T>
  void Check(const Field& field, const T& value) const {
    if constexpr (std::is_arithmetic_v<T>) {
      if (field.range.Contains(static_cast<double>(value))) return;
      const std::string words =
          field.range.words != nullptr ? field.range.words : "must be " + RangeText(field.range);
      Require(false, field.name, '"' + std::string(field.name) + "\" " + words, value);
    }
  }
  template <typename T>
  void Check(const Field& field, const std::optional<T>& value) const {
    if (value) Check(field, *value);
  }
  void Check(const Field& field, const std::vector<int32_t>& token_ids) const {
    for (int32_t token_id : token_ids) CheckTokenId(field.name, token_id, vocab_size_);
  }
  void Check(const Field& field, const std::vector<std::vector<int32_t>>& sequences) const {
    Require(sequences.size() <= kMaxBadWords, field.name,
            '"' + std::string(field.name) + "\" holds at most " + std::to_string(kMaxBadWords) +
                " sequences of tokens",
            sequences.size());
    for (const std::vector<int32_t>& sequence : sequences) {
      Require(!sequence.empty(), field.name,
              '"' + std::string(field.name) + "\" holds sequences of at least 1 token", "none");
      Check(field, sequence);
    }
  }
  void Check(const Field& field, const LogitBias& logit_bias) const {
    for (const auto& [token_id, bias] : logit_bias) {
      CheckTokenId(field.name, token_id, vocab_size_);
      Require(field.range.Contains(bias), field.name,
              "Logit bias value should be in range [-100, 100]", bias);
    }
  }

  const GenerationConfig& config_;
  int64_t vocab_size_;
};

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

// Tokens that a grammar forces are put in without a draw, so only the grammar can forbid them.
void CheckTokenLimits(const GenerationConfig& config) {
  Require(
      config.max_tokens < 0 || config.min_tokens <= config.max_tokens, "min_tokens",
      "\"min_tokens\" should be at most \"max_tokens\" (" + std::to_string(config.max_tokens) + ')',
      config.min_tokens);
  if (!config.response_format.is_constrained()) return;
  const auto refuse = [&](const char* field) {
    throw InvalidRequest(field, '"' + std::string(field) +
                                    "\" cannot be combined with a response_format, got type \"" +
                                    ToString(config.response_format.type) + '"');
  };
  const GenerationConfig defaults;
  VisitGenerationFields([&]<typename T>(const Field& field, T GenerationConfig::* member) {
    if constexpr (std::equality_comparable<T>) {
      if (field.forbids_tokens && config.*member != defaults.*member) refuse(field.name);
    }
  });
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

std::string RangeText(const FieldRange& range) {
  std::string text = range.above_low ? "a number in (" : "a number in [";
  AppendTo(&text, range.low);
  text += ", ";
  AppendTo(&text, range.high);
  return text + ']';
}

Pooling ParsePooling(const std::string& name) {
  if (const auto pooling = ValueOf<Pooling>(name)) return *pooling;
  throw InvalidRequest("pooling",
                       OutOfRangeMessage("pooling", '"' + name + '"', ListNamesOf<Pooling>()));
}

RequestPriority ParsePriority(const std::string& name) {
  if (const auto priority = ValueOf<RequestPriority>(name)) return *priority;
  throw InvalidRequest(
      "priority", OutOfRangeMessage("priority", '"' + name + '"', ListNamesOf<RequestPriority>()));
}

ResponseFormatType ParseResponseFormatType(const std::string& name) {
  if (const auto type = ValueOf<ResponseFormatType>(name)) return *type;
  throw InvalidRequest("response_format", "Unknown response_format type \"" + name.substr(0, 64) +
                                              "\"; the types are " +
                                              ListNamesOf<ResponseFormatType>());
}

void GenerationConfig::Validate(int64_t vocab_size) const {
  VisitGenerationFields(FieldChecker(*this, vocab_size));
  CheckStopStrs(stop_strs);
  Require(logprobs || top_logprobs == 0, "top_logprobs",
          "\"logprobs\" must be true to support \"top_logprobs\"", top_logprobs);
  CheckResponseFormat(response_format);
  CheckTokenLimits(*this);
  CheckDebugConfig(debug_config);
}

}  // namespace mlc_native
