// What calls of the C API refuse: NULL, wrong sizes, bodies and settings that are wrong. Each error
// has its code and names what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "c_api/harness.h"
#include "mlc_native/mlc_native.h"

namespace mlc_native::testing {
namespace {

using ::testing::HasSubstr;

TEST(CApi, NullIsAnErrorOrNothing) {
  const HostedEngine engine;
  mlcn_error* error = nullptr;
  mlcn_engine* made = nullptr;
  mlcn_request* request = nullptr;
  mlcn_outputs* outputs = nullptr;
  char* text = nullptr;
  int32_t* tokens = nullptr;
  size_t count = 0;
  int64_t pin = 0;
  const int32_t token = 1;
  const auto is_refused = [&](int32_t code, const char* argument) {
    EXPECT_EQ(code, MLCN_INVALID_ARGUMENT) << argument;
    EXPECT_STREQ(mlcn_error_field(error), argument);
    EXPECT_THAT(mlcn_error_message(error), HasSubstr("must not be NULL"));
    mlcn_error_release(error);
    error = nullptr;
  };
  is_refused(mlcn_engine_create(nullptr, nullptr, nullptr, &made, &error), "model");
  is_refused(mlcn_engine_create("x", nullptr, nullptr, nullptr, &error), "engine");
  is_refused(mlcn_engine_reload(nullptr, "x", nullptr, &error), "engine");
  is_refused(mlcn_engine_reload(engine, nullptr, nullptr, &error), "model");
  is_refused(mlcn_engine_stop(nullptr, &error), "engine");
  is_refused(mlcn_engine_cancel_all(nullptr, &error), "engine");
  is_refused(mlcn_engine_info(nullptr, &text, &count, &error), "engine");
  is_refused(mlcn_engine_info(engine, nullptr, &count, &error), "json");
  is_refused(mlcn_engine_metrics(nullptr, &text, &count, &error), "engine");
  is_refused(mlcn_engine_metrics(engine, nullptr, &count, &error), "json");
  is_refused(mlcn_engine_metrics_prometheus(nullptr, &text, &count, &error), "engine");
  is_refused(mlcn_engine_metrics_prometheus(engine, nullptr, &count, &error), "text");
  is_refused(mlcn_submit(nullptr, "{}", 2, nullptr, &request, &error), "engine");
  is_refused(mlcn_submit(engine, nullptr, 2, nullptr, &request, &error), "body");
  is_refused(mlcn_submit(engine, "{}", 2, nullptr, nullptr, &error), "request");
  is_refused(mlcn_request_wait(nullptr, 0, &error), "request");
  is_refused(mlcn_poll(nullptr, 1, 0, &outputs, &error), "engine");
  is_refused(mlcn_poll(engine, 1, 0, nullptr, &error), "outputs");
  is_refused(mlcn_tokenize(nullptr, "a", 1, 0, &tokens, &count, &error), "engine");
  is_refused(mlcn_tokenize(engine, nullptr, 1, 0, &tokens, &count, &error), "text");
  is_refused(mlcn_tokenize(engine, "a", 1, 0, nullptr, &count, &error), "tokens");
  is_refused(mlcn_tokenize(engine, "a", 1, 0, &tokens, nullptr, &error), "num_tokens");
  is_refused(mlcn_detokenize(nullptr, &token, 1, 0, &text, &count, &error), "engine");
  is_refused(mlcn_detokenize(engine, nullptr, 1, 0, &text, &count, &error), "tokens");
  is_refused(mlcn_detokenize(engine, &token, 1, 0, nullptr, &count, &error), "text");
  is_refused(mlcn_apply_chat_template(nullptr, "{}", 2, &text, &count, &error), "engine");
  is_refused(mlcn_apply_chat_template(engine, nullptr, 2, &text, &count, &error), "body");
  is_refused(mlcn_apply_chat_template(engine, "{}", 2, nullptr, &count, &error), "prompt");
  is_refused(mlcn_pin_prefix(nullptr, &token, 1, &pin, &error), "engine");
  is_refused(mlcn_pin_prefix(engine, nullptr, 1, &pin, &error), "tokens");
  is_refused(mlcn_pin_prefix(engine, &token, 1, nullptr, &error), "pin_id");
  is_refused(mlcn_unpin_prefix(nullptr, 1, &error), "engine");
  is_refused(mlcn_load_adapter(nullptr, "a", "b", &error), "engine");
  is_refused(mlcn_load_adapter(engine, nullptr, "b", &error), "name");
  is_refused(mlcn_load_adapter(engine, "a", nullptr, &error), "path");
  is_refused(mlcn_unload_adapter(nullptr, "a", &error), "engine");
  is_refused(mlcn_unload_adapter(engine, nullptr, &error), "name");
  // These have nothing to do.
  EXPECT_EQ(mlcn_engine_destroy(nullptr, nullptr), MLCN_OK);
  EXPECT_EQ(mlcn_error_code(nullptr), MLCN_OK);
  EXPECT_STREQ(mlcn_error_field(nullptr), "");
  EXPECT_STREQ(mlcn_error_message(nullptr), "");
  EXPECT_STREQ(mlcn_request_id(nullptr), "");
  EXPECT_EQ(mlcn_event_fd(nullptr), -1);
  EXPECT_EQ(mlcn_outputs_count(nullptr), 0u);
  EXPECT_EQ(mlcn_outputs_at(nullptr, 0), nullptr);
  mlcn_error_release(nullptr);
  mlcn_request_cancel(nullptr);
  mlcn_request_release(nullptr);
  mlcn_outputs_release(nullptr);
  mlcn_free(nullptr);
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(request, nullptr);
}

TEST(CApi, WrongSizesBytesAndTimesAreRefused) {
  const HostedEngine engine;
  mlcn_request* request = nullptr;
  mlcn_outputs* outputs = nullptr;
  for (const uint32_t size : {0u, 7u, uint32_t{sizeof(mlcn_submit_options)} + 8}) {
    mlcn_submit_options options = MLCN_SUBMIT_OPTIONS_INIT;
    options.size = size;
    const Outcome outcome = OutcomeOf(
        [&](mlcn_error** e) { return mlcn_submit(engine, "{}", 2, &options, &request, e); });
    EXPECT_EQ(outcome.code, MLCN_INVALID_ARGUMENT);
    EXPECT_EQ(outcome.field, "options");
    EXPECT_THAT(outcome.message, HasSubstr(std::to_string(size)));
  }
  EXPECT_EQ(OutcomeOf([&](mlcn_error** e) {
              return mlcn_submit(engine, "{\"\xff\": 1}", 8, nullptr, &request, e);
            }).field,
            "body");
  EXPECT_EQ(OutcomeOf([&](mlcn_error** e) { return mlcn_poll(engine, 0, 0, &outputs, e); }).field,
            "max_outputs");
  EXPECT_EQ(OutcomeOf([&](mlcn_error** e) { return mlcn_poll(engine, 1, -2, &outputs, e); }).field,
            "timeout_ms");
}

struct BadBody {
  const char* body;
  const char* field;
  const char* said;
};

class BadBodies : public ::testing::TestWithParam<BadBody> {};

TEST_P(BadBodies, AreRefusedByField) {
  const HostedEngine engine;
  const BadBody& bad = GetParam();
  mlcn_request* request = nullptr;
  const Outcome outcome = OutcomeOf([&](mlcn_error** e) {
    return mlcn_submit(engine, bad.body, MLCN_NUL_TERMINATED, nullptr, &request, e);
  });
  EXPECT_EQ(outcome.code, MLCN_INVALID_REQUEST) << bad.body;
  EXPECT_EQ(outcome.field, bad.field) << outcome.message;
  EXPECT_THAT(outcome.message, HasSubstr(bad.said));
  EXPECT_EQ(request, nullptr);
}

INSTANTIATE_TEST_SUITE_P(
    CApi, BadBodies,
    ::testing::Values(
        BadBody{"", "body", "JSON"}, BadBody{"[1]", "body", "object"}, BadBody{"{", "body", "JSON"},
        BadBody{"{\"max_tokens\": 5}", "prompt", "exactly one"},
        BadBody{"{\"prompt\": [1], \"messages\": []}", "prompt", "exactly one"},
        BadBody{"{\"prompt\": [1], \"max_token\": 5}", "max_token", "did you mean \"max_tokens\""},
        BadBody{"{\"prompt\": [-1]}", "prompt", "token ids"},
        BadBody{"{\"prompt\": [256]}", "prompt", "[0, 256)"},
        BadBody{"{\"prompt\": [1], \"max_tokens\": 1.5}", "max_tokens", "integer"},
        BadBody{"{\"prompt\": [1], \"max_tokens\": 5, \"max_completion_tokens\": 6}",
                "max_completion_tokens", "contradict"},
        BadBody{"{\"prompt\": [1], \"temperature\": -1}", "temperature", "got -1"},
        BadBody{"{\"prompt\": [1], \"stop\": [1]}", "stop", "stop"},
        BadBody{"{\"prompt\": [1], \"logit_bias\": {\"x\": 1}}", "logit_bias", "token ids"},
        BadBody{"{\"prompt\": [1], \"logprobs\": 6}", "logprobs", "[0, 5]"},
        BadBody{"{\"prompt\": [1], \"bad_words\": [[]]}", "bad_words", "at least 1"},
        BadBody{"{\"prompt\": [1], \"debug_config\": {\"x\": 1}}", "x", "debug option"},
        BadBody{"{\"prompt\": [1], \"response_format\": {\"type\": \"xml\"}}", "response_format",
                "\"json_schema\""},
        BadBody{"{\"prompt\": [1], \"response_format\": {\"type\": \"regex\"}}", "response_format",
                "needs \"regex\""},
        BadBody{"{\"prompt\": [1], \"response_format\": {\"type\": \"regex\", \"regex\": \"a\","
                " \"choice\": []}}",
                "response_format", "takes no \"choice\""},
        BadBody{"{\"prompt\": [1], \"n\": 0}", "n", "got 0"},
        BadBody{"{\"prompt\": \"text\"}", "prompt", "tokenizer.json"}));

TEST(CApi, ErrorsOfModelsAndSettingsHaveTheirCodes) {
  mlcn_engine* engine = nullptr;
  const auto create = [&](const char* model, const char* config) {
    return OutcomeOf(
        [&](mlcn_error** e) { return mlcn_engine_create(model, config, nullptr, &engine, e); });
  };
  EXPECT_EQ(create("/nonexistent", nullptr).code, MLCN_LOAD_ERROR);
  EXPECT_EQ(create("/nonexistent", "{\"mod\": 1}").code, MLCN_INVALID_CONFIG);
  EXPECT_EQ(create("/nonexistent", "{").code, MLCN_INVALID_CONFIG);
  EXPECT_EQ(create("/nonexistent", "{\"model\": \"other\"}").field, "model");
  EXPECT_EQ(engine, nullptr);
}

TEST(CApi, AWrongLogLevelIsRefused) {
  const HostedEngine other;
  for (const auto& [level, reserved, field] :
       {std::tuple(4, 0, "options.log_level"), std::tuple(-1, 0, "options.log_level"),
        std::tuple(1, 1, "options.reserved")}) {
    mlcn_engine_options options = MLCN_ENGINE_OPTIONS_INIT;
    options.log_level = level;
    options.reserved = reserved;
    mlcn_engine* engine = nullptr;
    const Outcome outcome = OutcomeOf([&](mlcn_error** e) {
      return mlcn_engine_create(other.path().c_str(), other.config(), &options, &engine, e);
    });
    EXPECT_EQ(outcome.code, MLCN_INVALID_ARGUMENT);
    EXPECT_EQ(outcome.field, field);
    EXPECT_EQ(engine, nullptr);
  }
}

}  // namespace
}  // namespace mlc_native::testing
