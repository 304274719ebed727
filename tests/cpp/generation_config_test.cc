// GenerationConfig: its defaults, its ranges, its JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "mlc_native/config.h"
#include "support/error.h"
#include "testing/error_message.h"

namespace mlc_native {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::MessageOf;

constexpr int64_t kVocabSize = 100;

std::string RequestError(const std::string& field,
                         const std::function<void(GenerationConfig*)>& change) {
  GenerationConfig config;
  change(&config);
  return MessageOf<InvalidRequest>(field, [&] { config.Validate(kVocabSize); });
}

TEST(GenerationConfig, DefaultsAndLimitsAreValid) {
  GenerationConfig config;
  EXPECT_NO_THROW(config.Validate(kVocabSize));
  config.n = 4;
  config.max_tokens = 0;
  config.temperature = 0;
  config.top_p = 0;
  config.top_k = -1;
  config.min_p = 1;
  config.frequency_penalty = -2;
  config.presence_penalty = 2;
  config.repetition_penalty = 0.5;
  config.logit_bias = {{0, -100}, {kVocabSize - 1, 100}};
  config.stop_token_ids = {0, kVocabSize - 1};
  config.stop_strs.assign(1024, "x");
  config.logprobs = true;
  config.top_logprobs = 20;
  config.seed = -1;
  config.debug_config.special_request = "query_engine_metrics";
  config.debug_config.grammar_execution_mode = "constraint";
  EXPECT_NO_THROW(config.Validate(kVocabSize));
}

struct BadRequest {
  const char* field;
  const char* expected;
  std::function<void(GenerationConfig*)> change;
};

class GenerationConfigBad : public ::testing::TestWithParam<BadRequest> {};

TEST_P(GenerationConfigBad, IsRefusedByName) {
  EXPECT_THAT(RequestError(GetParam().field, GetParam().change), HasSubstr(GetParam().expected));
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

INSTANTIATE_TEST_SUITE_P(
    All, GenerationConfigBad,
    ::testing::
        Values(BadRequest{"n", "\"n\" should be at least 1, got 0", [](auto* c) { c->n = 0; }},
               BadRequest{"max_tokens", "got -2", [](auto* c) { c->max_tokens = -2; }},
               BadRequest{"temperature", "\"temperature\" should be non-negative",
                          [](auto* c) { c->temperature = -1; }},
               BadRequest{"temperature", "nan", [](auto* c) { c->temperature = kNaN; }},
               BadRequest{"temperature", "inf", [](auto* c) { c->temperature = kInf; }},
               BadRequest{"top_p", "\"top_p\" should be in range [0, 1], got 1.1",
                          [](auto* c) { c->top_p = 1.1; }},
               BadRequest{"top_p", "nan", [](auto* c) { c->top_p = kNaN; }},
               BadRequest{"top_k", "got -2", [](auto* c) { c->top_k = -2; }},
               BadRequest{"min_p", "[0, 1]", [](auto* c) { c->min_p = -0.1; }},
               BadRequest{"timeout_s", "(0, 1e9] seconds, got 0",
                          [](auto* c) { c->timeout_s = 0; }},
               BadRequest{"timeout_s", "nan", [](auto* c) { c->timeout_s = kNaN; }},
               BadRequest{"queue_timeout_s", "inf", [](auto* c) { c->queue_timeout_s = kInf; }},
               BadRequest{"min_p", "nan", [](auto* c) { c->min_p = kNaN; }},
               BadRequest{"frequency_penalty", "[-2, 2], got 2.1",
                          [](auto* c) { c->frequency_penalty = 2.1; }},
               BadRequest{"frequency_penalty", "nan", [](auto* c) { c->frequency_penalty = kNaN; }},
               BadRequest{"presence_penalty", "[-2, 2], got -3",
                          [](auto* c) { c->presence_penalty = -3; }},
               BadRequest{"presence_penalty", "nan", [](auto* c) { c->presence_penalty = kNaN; }},
               BadRequest{"repetition_penalty", "\"repetition_penalty\" must be positive",
                          [](auto* c) { c->repetition_penalty = 0; }},
               BadRequest{"repetition_penalty", "nan",
                          [](auto* c) { c->repetition_penalty = kNaN; }},
               BadRequest{"repetition_penalty", "inf",
                          [](auto* c) { c->repetition_penalty = kInf; }},
               BadRequest{"logit_bias", "[0, 100), got 100",
                          [](auto* c) { c->logit_bias = {{100, 1}}; }},
               BadRequest{"logit_bias", "got -1", [](auto* c) { c->logit_bias = {{-1, 1}}; }},
               BadRequest{"logit_bias", "Logit bias value should be in range [-100, 100]",
                          [](auto* c) { c->logit_bias = {{1, 101}}; }},
               BadRequest{"logit_bias", "nan", [](auto* c) { c->logit_bias = {{1, kNaN}}; }},
               BadRequest{"stop_token_ids", "[0, 100), got 100",
                          [](auto* c) { c->stop_token_ids = {1, 100}; }},
               BadRequest{"min_tokens", "should be at least 0, got -1",
                          [](auto* c) { c->min_tokens = -1; }},
               BadRequest{"min_tokens", "should be at most \"max_tokens\" (3), got 4",
                          [](auto* c) {
                            c->max_tokens = 3;
                            c->min_tokens = 4;
                          }},
               BadRequest{"truncate_prompt_tokens", "should be at least 1, got 0",
                          [](auto* c) { c->truncate_prompt_tokens = 0; }},
               BadRequest{"allowed_token_ids", "[0, 100), got 100",
                          [](auto* c) { c->allowed_token_ids = {1, 100}; }},
               BadRequest{"allowed_token_ids", "cannot be combined with a response_format",
                          [](auto* c) {
                            c->allowed_token_ids = {1};
                            c->response_format = {ResponseFormatType::kRegex, "a", {}};
                          }},
               BadRequest{"bad_words", "[0, 100), got -1",
                          [](auto* c) { c->bad_words = {{1}, {2, -1}}; }},
               BadRequest{"bad_words", "sequences of at least 1 token",
                          [](auto* c) { c->bad_words = {{}}; }},
               BadRequest{"bad_words", "at most 4096 sequences of tokens, got 5000",
                          [](auto* c) { c->bad_words.assign(5000, {1}); }},
               BadRequest{"bad_words",
                          "cannot be combined with a response_format, got type \"choice\"",
                          [](auto* c) {
                            c->bad_words = {{1}};
                            c->response_format = {ResponseFormatType::kChoice, "", {"a"}};
                          }},
               BadRequest{"stop_strs", "Invalid stop string in stop_strs",
                          [](auto* c) { c->stop_strs = {"a", ""}; }},
               BadRequest{"stop_strs", "at most 1024 strings, got 10000",
                          [](auto* c) { c->stop_strs.assign(10000, "x"); }},
               BadRequest{"stop_strs", "at most 65536 bytes in total, got 65537",
                          [](auto* c) { c->stop_strs = {std::string(65537, 'x')}; }},
               BadRequest{"top_logprobs", "At most 20 top logprob tokens are supported",
                          [](auto* c) {
                            c->logprobs = true;
                            c->top_logprobs = 21;
                          }},
               BadRequest{"top_logprobs", "got -1", [](auto* c) { c->top_logprobs = -1; }},
               BadRequest{"top_logprobs", "\"logprobs\" must be true to support \"top_logprobs\"",
                          [](auto* c) { c->top_logprobs = 2; }},
               BadRequest{"response_format", "type \"text\" takes no text",
                          [](auto* c) { c->response_format.text = "x"; }},
               BadRequest{
                   "response_format", "type \"json_object\" takes no text",
                   [](auto*
                          c) { c->response_format = {ResponseFormatType::kJsonObject, "{}", {}}; }},
               BadRequest{
                   "response_format", "type \"json_schema\" needs a text, got \"\"",
                   [](auto* c) { c->response_format.type = ResponseFormatType::kJsonSchema; }},
               BadRequest{
                   "response_format", "type \"choice\" needs at least 1 choice, got 0",
                   [](auto* c) { c->response_format.type = ResponseFormatType::kChoice; }},
               BadRequest{
                   "response_format", "type \"regex\" takes no choices",
                   [](auto* c) { c->response_format = {ResponseFormatType::kRegex, "a", {"b"}}; }},
               BadRequest{"response_format", "type \"choice\": the text must be valid UTF-8",
                          [](auto* c) {
                            c->response_format = {ResponseFormatType::kChoice, "", {"a", "\xff"}};
                          }},
               BadRequest{"special_request", "Unknown special request \"x\"",
                          [](auto* c) { c->debug_config.special_request = "x"; }},
               BadRequest{"grammar_execution_mode", "Unknown grammar execution mode \"x\"",
                          [](auto* c) { c->debug_config.grammar_execution_mode = "x"; }}));

// Every option: a new one needs no line here.

// Sets a number, optional or not. Returns false for other types.
template <typename T>
bool SetNumber(T* member, double value) {
  if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
    *member = static_cast<T>(value);
    return true;
  }
  return false;
}
template <typename T>
bool SetNumber(std::optional<T>* member, double value) {
  return SetNumber(&member->emplace(), value);
}

TEST(GenerationConfigFields, NumbersOutOfRangeAreRefusedByName) {
  int num_ranges = 0;
  VisitGenerationFields([&]<typename T>(const Field& field, T GenerationConfig::* member) {
    const auto set = [&](double value) {
      GenerationConfig config;
      config.logprobs = true;  // which top_logprobs needs
      config.max_tokens = 1 << 20;
      return SetNumber(&(config.*member), value) ? std::optional(config) : std::nullopt;
    };
    const FieldRange& range = field.range;
    if (!std::isfinite(range.low) || !set(range.low)) return;
    ++num_ranges;
    const auto refuses = [&](double value) {
      EXPECT_THAT(
          RequestError(field.name, [&](GenerationConfig* config) { *config = *set(value); }),
          HasSubstr("\"" + std::string(field.name) + "\""))
          << value;
    };
    const auto takes = [&](double value) {
      EXPECT_NO_THROW(set(value)->Validate(kVocabSize)) << field.name << ' ' << value;
    };
    refuses(range.low - 1);
    range.above_low ? refuses(range.low) : takes(range.low);
    if (!std::isfinite(range.high)) return;
    takes(range.high);
    refuses(range.high + 1);
  });
  EXPECT_GE(num_ranges, 14);
}

TEST(GenerationConfigFields, WhatForbidsTokensHasNoGrammar) {
  std::vector<std::string> names;
  VisitGenerationFields([&]<typename T>(const Field& field, T GenerationConfig::* member) {
    if (!field.forbids_tokens) return;
    names.emplace_back(field.name);
    GenerationConfig config;
    if (!SetNumber(&(config.*member), 1)) {
      if constexpr (requires { (config.*member).resize(1); }) (config.*member).resize(1);
    }
    config.response_format = {ResponseFormatType::kRegex, "a", {}};
    if constexpr (std::is_same_v<T, std::vector<std::vector<int32_t>>>) {
      (config.*member)[0] = {1};
    }
    EXPECT_THAT(MessageOf<InvalidRequest>(field.name, [&] { config.Validate(kVocabSize); }),
                HasSubstr("cannot be combined with a response_format, got type \"regex\""));
  });
  EXPECT_THAT(names, ::testing::IsSupersetOf({"allowed_token_ids", "bad_words"}));
}

TEST(ResponseFormat, TypesHaveNames) {
  for (const char* name :
       {"text", "json_object", "json_schema", "regex", "grammar", "choice", "structural_tag"}) {
    EXPECT_STREQ(ToString(ParseResponseFormatType(name)), name);
  }
  try {
    ParseResponseFormatType("xml");
    FAIL() << "accepted";
  } catch (const InvalidRequest& error) {
    EXPECT_EQ(error.field(), "response_format");
    EXPECT_THAT(error.what(), HasSubstr("Unknown response_format type \"xml\""));
    EXPECT_THAT(error.what(), HasSubstr("\"structural_tag\""));
  }
}

TEST(GenerationConfig, AsJSON) {
  GenerationConfig config;
  config.logit_bias = {{7, -1.5}};
  config.stop_strs = {"\xff"};  // stop strings are bytes, JSON is not
  const json parsed = json::parse(config.AsJSONString());
  EXPECT_EQ(parsed["logit_bias"]["7"], -1.5);
  EXPECT_EQ(parsed["seed"], nullptr);
  EXPECT_EQ(parsed["max_tokens"], -1);
  EXPECT_EQ(parsed["response_format"]["type"], "text");
  EXPECT_EQ(parsed["debug_config"]["grammar_execution_mode"], "jump_forward");
}

}  // namespace
}  // namespace mlc_native
