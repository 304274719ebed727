// Requests of the C API: their outputs, by callbacks and polled, their ends, and those of engines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "c_api/harness.h"
#include "mlc_native/mlc_native.h"

namespace mlc_native::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

bool IsReadable(int fd) {
  pollfd event{fd, POLLIN, 0};
  return poll(&event, 1, 0) == 1;
}

TEST(CApi, AnswersWithOneFinalOutput) {
  const HostedEngine engine;
  Received received;
  mlcn_request* request = engine.Submit(kGreedy, OptionsFor(&received, kPrompt));
  EXPECT_EQ(mlcn_request_wait(request, MLCN_FOREVER, nullptr), MLCN_OK);
  EXPECT_EQ(received.tokens.size(), 20u);
  EXPECT_THAT(received.reasons, ElementsAre(MLCN_FINISH_LENGTH));
  EXPECT_EQ(received.num_finals, 1);
  EXPECT_EQ(received.usage.size, sizeof(mlcn_usage));
  EXPECT_EQ(received.usage.prompt_tokens, 5);
  EXPECT_EQ(received.usage.completion_tokens, 20);
  EXPECT_GT(received.usage.end_to_end_latency, 0);
  mlcn_request_release(request);
}

TEST(CApi, PolledOutputsEqualThoseOfCallbacks) {
  const HostedEngine engine;
  Received received;
  mlcn_request* request = engine.Submit(kGreedy, OptionsFor(&received, kPrompt));
  ASSERT_EQ(mlcn_request_wait(request, MLCN_FOREVER, nullptr), MLCN_OK);
  mlcn_request_release(request);

  mlcn_submit_options options = OptionsFor(nullptr, kPrompt);
  options.on_output = nullptr;
  EXPECT_FALSE(IsReadable(mlcn_event_fd(engine)));
  mlcn_request* polled = engine.Submit(kGreedy, options);
  std::vector<int32_t> tokens;
  bool ended = false;
  while (!ended) {
    mlcn_outputs* outputs = nullptr;
    ASSERT_EQ(mlcn_poll(engine, 3, MLCN_FOREVER, &outputs, nullptr), MLCN_OK);
    ASSERT_GE(mlcn_outputs_count(outputs), 1u);
    ASSERT_LE(mlcn_outputs_count(outputs), 3u);
    for (size_t i = 0; i < mlcn_outputs_count(outputs); ++i) {
      const mlcn_output* output = mlcn_outputs_at(outputs, i);
      EXPECT_EQ(output->request, polled);
      EXPECT_EQ(std::strlen(output->text), output->text_length);
      tokens.insert(tokens.end(), output->tokens, output->tokens + output->num_tokens);
      ended = ended || output->is_final != 0;
    }
    EXPECT_EQ(mlcn_outputs_at(outputs, mlcn_outputs_count(outputs)), nullptr);
    mlcn_outputs_release(outputs);
  }
  EXPECT_EQ(tokens, received.tokens);
  EXPECT_FALSE(IsReadable(mlcn_event_fd(engine)));
  mlcn_outputs* none = nullptr;
  EXPECT_EQ(mlcn_poll(engine, 1, 0, &none, nullptr), MLCN_OK);
  EXPECT_EQ(none, nullptr);
  mlcn_request_release(polled);
}

// What waits is divided as the host asks for it, and each part lives as long as the host has it.
TEST(CApi, PollsDivideWhatWaits) {
  constexpr size_t kRequests = 4, kMost = 3;
  constexpr const char* kTwoAnswers = "{\"temperature\": 0, \"max_tokens\": 20, \"n\": 2}";
  const HostedEngine engine;
  std::map<mlcn_request*, std::map<int32_t, std::vector<int32_t>>> tokens;
  for (size_t i = 0; i < kRequests; ++i) {
    mlcn_submit_options options = OptionsFor(nullptr, kPrompt);
    options.on_output = nullptr;
    tokens[engine.Submit(kTwoAnswers, options)] = {};
  }
  for (const auto& [request, none] : tokens) mlcn_request_wait(request, MLCN_FOREVER, nullptr);
  std::vector<mlcn_outputs*> batches;
  for (size_t finals = 0; finals < kRequests;) {
    ASSERT_EQ(mlcn_poll(engine, kMost, 0, &batches.emplace_back(), nullptr), MLCN_OK);
    const size_t count = mlcn_outputs_count(batches.back());
    ASSERT_GE(count, 1u) << "outputs are lost";
    EXPECT_TRUE(count == kMost || !IsReadable(mlcn_event_fd(engine))) << count;
    for (size_t i = 0; i < count; ++i) finals += mlcn_outputs_at(batches.back(), i)->is_final;
  }
  for (mlcn_outputs* batch : batches) {
    for (size_t i = 0; i < mlcn_outputs_count(batch); ++i) {
      const mlcn_output* output = mlcn_outputs_at(batch, i);
      std::vector<int32_t>& all = tokens.at(output->request)[output->index];
      all.insert(all.end(), output->tokens, output->tokens + output->num_tokens);
    }
    mlcn_outputs_release(batch);
  }
  for (const auto& [request, answers] : tokens) {
    EXPECT_EQ(answers.at(0).size(), 20u);
    EXPECT_EQ(answers, tokens.begin()->second);
    mlcn_request_release(request);
  }
}

TEST(CApi, ReportsLogprobsOfAnswerAndPrompt) {
  const HostedEngine engine;
  struct Seen {
    size_t count = 0, num_top = 0, prompt_count = 0;
    bool agree = true;
  } seen;
  mlcn_submit_options options = OptionsFor(nullptr, kPrompt);
  options.user_data = &seen;
  options.on_output = [](const mlcn_output* output) {
    auto& result = *static_cast<Seen*>(output->user_data);
    if (output->prompt_logprobs != nullptr) result.prompt_count = output->prompt_logprobs->count;
    if (output->num_tokens == 0) return;
    const mlcn_logprobs& logprobs = *output->logprobs;
    result.count += logprobs.count;
    result.num_top = logprobs.num_top;
    for (size_t i = 0; i < logprobs.count; ++i) {
      // Greedy: the token is the most likely one.
      result.agree = result.agree && logprobs.tokens[i] == output->tokens[i] &&
                     logprobs.top_tokens[i * logprobs.num_top] == output->tokens[i] &&
                     logprobs.values[i] == logprobs.top_values[i * logprobs.num_top];
    }
  };
  mlcn_request* request = engine.Submit(
      "{\"temperature\": 0, \"max_tokens\": 7, \"logprobs\": true, \"top_logprobs\": 3,"
      " \"prompt_logprobs\": 0}",
      options);
  ASSERT_EQ(mlcn_request_wait(request, MLCN_FOREVER, nullptr), MLCN_OK);
  mlcn_request_release(request);
  EXPECT_EQ(seen.count, 7u);
  EXPECT_EQ(seen.num_top, 3u);
  EXPECT_EQ(seen.prompt_count, kPrompt.size());
  EXPECT_TRUE(seen.agree);
}

TEST(CApi, SeparatesTheAnswersOfOneRequest) {
  const HostedEngine engine;
  struct Seen {
    std::vector<int32_t> tokens[3];
  } seen;
  mlcn_submit_options options = OptionsFor(nullptr, kPrompt);
  options.user_data = &seen;
  options.on_output = [](const mlcn_output* output) {
    if (output->is_final) return;
    auto& tokens = static_cast<Seen*>(output->user_data)->tokens[output->index];
    tokens.insert(tokens.end(), output->tokens, output->tokens + output->num_tokens);
  };
  mlcn_request* request =
      engine.Submit("{\"temperature\": 0, \"max_tokens\": 9, \"n\": 3}", options);
  ASSERT_EQ(mlcn_request_wait(request, MLCN_FOREVER, nullptr), MLCN_OK);
  mlcn_request_release(request);
  EXPECT_EQ(seen.tokens[0].size(), 9u);
  EXPECT_EQ(seen.tokens[1], seen.tokens[0]);
  EXPECT_EQ(seen.tokens[2], seen.tokens[0]);
}

// ---- the end of requests and engines

TEST(CApi, CancelsARequestAndAllOfThem) {
  const HostedEngine engine("{\"us_per_step\": 200, \"cost\": \"sleep\"}");
  Received one, two;
  mlcn_request* first = engine.Submit("{}", OptionsFor(&one, kPrompt));
  mlcn_request* second = engine.Submit("{}", OptionsFor(&two, kPrompt));
  EXPECT_EQ(OutcomeOf([&](mlcn_error** e) { return mlcn_request_wait(first, 1, e); }).code,
            MLCN_TIMEOUT);
  mlcn_request_cancel(first);
  EXPECT_EQ(mlcn_request_wait(first, MLCN_FOREVER, nullptr), MLCN_OK);
  EXPECT_THAT(one.reasons, ElementsAre(MLCN_FINISH_ABORT));
  EXPECT_EQ(mlcn_engine_cancel_all(engine, nullptr), MLCN_OK);
  EXPECT_EQ(mlcn_request_wait(second, MLCN_FOREVER, nullptr), MLCN_OK);
  EXPECT_THAT(two.reasons, ElementsAre(MLCN_FINISH_ABORT));
  mlcn_request_cancel(second);  // nothing happens
  mlcn_request_release(first);
  mlcn_request_release(second);
}

TEST(CApi, ARequestOutlivesItsHandleAndItsEngine) {
  Received received, kept;
  mlcn_request* handle = nullptr;
  {
    const HostedEngine engine("{\"us_per_step\": 200, \"cost\": \"sleep\"}");
    mlcn_request_release(engine.Submit("{}", OptionsFor(&received, kPrompt)));
    handle = engine.Submit("{}", OptionsFor(&kept, kPrompt));
  }
  EXPECT_EQ(received.num_finals, 1);
  EXPECT_EQ(received.num_after_final, 0);
  EXPECT_EQ(kept.num_finals, 1);
  EXPECT_EQ(mlcn_request_wait(handle, 0, nullptr), MLCN_OK);
  EXPECT_STREQ(mlcn_request_id(handle), "request-2");
  mlcn_request_cancel(handle);
  mlcn_request_release(handle);
}

TEST(CApi, AStoppedEngineKeepsWhatWasNotPolled) {
  const HostedEngine engine("{\"us_per_step\": 200, \"cost\": \"sleep\"}");
  mlcn_submit_options options = OptionsFor(nullptr, kPrompt);
  options.on_output = nullptr;
  mlcn_request_release(engine.Submit("{}", options));
  EXPECT_EQ(mlcn_engine_stop(engine, nullptr), MLCN_OK);
  EXPECT_EQ(mlcn_engine_stop(engine, nullptr), MLCN_OK);
  EXPECT_TRUE(IsReadable(mlcn_event_fd(engine)));
  mlcn_outputs* outputs = nullptr;
  ASSERT_EQ(mlcn_poll(engine, 1u << 20, MLCN_FOREVER, &outputs, nullptr), MLCN_OK);
  ASSERT_GE(mlcn_outputs_count(outputs), 2u);
  EXPECT_EQ(mlcn_outputs_at(outputs, mlcn_outputs_count(outputs) - 1)->is_final, 1);
  mlcn_outputs_release(outputs);
  EXPECT_EQ(mlcn_poll(engine, 1, MLCN_FOREVER, &outputs, nullptr), MLCN_OK);  // does not block
  EXPECT_EQ(outputs, nullptr);
  mlcn_request* request = nullptr;
  EXPECT_EQ(mlcn_submit(engine, "{}", 2, &options, &request, nullptr), MLCN_INVALID_STATE);
  EXPECT_EQ(request, nullptr);
}

TEST(CApi, ACallbackMaySubmitAndCancelButNotWait) {
  const HostedEngine engine;
  struct Host {
    mlcn_engine* engine;
    Received inner;
    mlcn_request* second = nullptr;
    std::vector<int32_t> codes;
  } host{.engine = engine, .inner = {}, .second = nullptr, .codes = {}};
  mlcn_submit_options options = OptionsFor(nullptr, kPrompt);
  options.user_data = &host;
  options.on_output = [](const mlcn_output* output) {
    auto& self = *static_cast<Host*>(output->user_data);
    if (self.second != nullptr) return;
    const mlcn_submit_options inner = OptionsFor(&self.inner, kPrompt);
    self.codes.push_back(
        mlcn_submit(self.engine, kGreedy, MLCN_NUL_TERMINATED, &inner, &self.second, nullptr));
    self.codes.push_back(mlcn_engine_destroy(self.engine, nullptr));
    self.codes.push_back(mlcn_engine_stop(self.engine, nullptr));
    self.codes.push_back(mlcn_request_wait(self.second, MLCN_FOREVER, nullptr));
    char* json = nullptr;
    self.codes.push_back(mlcn_engine_metrics(self.engine, &json, nullptr, nullptr));
    self.codes.push_back(mlcn_engine_metrics_prometheus(self.engine, &json, nullptr, nullptr));
    mlcn_request_cancel(output->request);
  };
  mlcn_request* first = engine.Submit("{\"max_tokens\": 2000}", options);
  ASSERT_EQ(mlcn_request_wait(first, MLCN_FOREVER, nullptr), MLCN_OK);
  EXPECT_THAT(host.codes, ElementsAre(MLCN_OK, MLCN_INVALID_STATE, MLCN_INVALID_STATE,
                                      MLCN_INVALID_STATE, MLCN_INVALID_STATE, MLCN_INVALID_STATE));
  ASSERT_EQ(mlcn_request_wait(host.second, MLCN_FOREVER, nullptr), MLCN_OK);
  EXPECT_EQ(host.inner.tokens.size(), 20u);
  mlcn_request_release(first);
  mlcn_request_release(host.second);
}

TEST(CApi, LoadsAnotherModel) {
  const HostedEngine engine("{\"us_per_step\": 200, \"cost\": \"sleep\"}");
  const HostedEngine other("{\"vocab_size\": 300}");
  Received received;
  mlcn_request* request = engine.Submit("{}", OptionsFor(&received, kPrompt));
  EXPECT_EQ(mlcn_engine_reload(engine, "/nonexistent", engine.config(), nullptr), MLCN_LOAD_ERROR);
  EXPECT_EQ(mlcn_request_wait(request, 0, nullptr), MLCN_TIMEOUT);  // it was not disturbed
  EXPECT_EQ(mlcn_engine_reload(engine, other.path().c_str(), engine.config(), nullptr), MLCN_OK);
  EXPECT_EQ(mlcn_request_wait(request, MLCN_FOREVER, nullptr), MLCN_OK);
  EXPECT_THAT(received.reasons, ElementsAre(MLCN_FINISH_ABORT));
  mlcn_request_release(request);
  char* json = nullptr;
  ASSERT_EQ(mlcn_engine_info(engine, &json, nullptr, nullptr), MLCN_OK);
  EXPECT_THAT(json, HasSubstr("\"vocab_size\":300"));
  mlcn_free(json);
  Received again;
  request = engine.Submit(kGreedy, OptionsFor(&again, kPrompt));
  EXPECT_EQ(mlcn_request_wait(request, MLCN_FOREVER, nullptr), MLCN_OK);
  EXPECT_EQ(again.tokens.size(), 20u);
  mlcn_request_release(request);
}

TEST(CApi, NothingThatWaitsForTheEngineMayBeCalledWhileItLoads) {
  const HostedEngine model("{\"load_parts\": 1}");
  struct Host {
    std::string path, config;
    mlcn_engine* engine = nullptr;
    std::vector<int32_t> codes;
  } host{.path = model.path(), .config = model.config(), .engine = nullptr, .codes = {}};
  mlcn_engine_options options = MLCN_ENGINE_OPTIONS_INIT;
  options.user_data = &host;
  options.on_progress = [](void* user_data, int64_t /*done*/, int64_t /*total*/) {
    auto& self = *static_cast<Host*>(user_data);
    if (self.engine == nullptr) return;  // of mlcn_engine_create
    mlcn_outputs* outputs = nullptr;
    char* json = nullptr;
    self.codes = {
        mlcn_engine_reload(self.engine, self.path.c_str(), self.config.c_str(), nullptr),
        mlcn_engine_stop(self.engine, nullptr),
        mlcn_engine_destroy(self.engine, nullptr),
        mlcn_engine_metrics(self.engine, &json, nullptr, nullptr),
        mlcn_poll(self.engine, 1, MLCN_FOREVER, &outputs, nullptr),
    };
  };
  mlcn_engine* engine = nullptr;
  ASSERT_EQ(mlcn_engine_create(host.path.c_str(), host.config.c_str(), &options, &engine, nullptr),
            MLCN_OK);
  host.engine = engine;
  EXPECT_EQ(mlcn_engine_reload(engine, host.path.c_str(), host.config.c_str(), nullptr), MLCN_OK);
  EXPECT_EQ(host.codes, std::vector<int32_t>(5, MLCN_INVALID_STATE));
  EXPECT_EQ(mlcn_engine_destroy(engine, nullptr), MLCN_OK);
}

TEST(CApi, AnEngineBelongsToItsProcess) {
  const HostedEngine engine;
  const pid_t child = fork();
  if (child == 0) {
    char* json = nullptr;
    mlcn_request* request = nullptr;
    const bool refused =
        mlcn_submit(engine, "{}", 2, nullptr, &request, nullptr) == MLCN_INVALID_STATE &&
        mlcn_engine_metrics(engine, &json, nullptr, nullptr) == MLCN_INVALID_STATE &&
        mlcn_engine_destroy(engine, nullptr) == MLCN_OK;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(CApi, TwoLiveRequestsHaveDifferentNames) {
  const HostedEngine engine("{\"us_per_step\": 200, \"cost\": \"sleep\"}");
  Received received, again;
  mlcn_submit_options options = OptionsFor(&received, kPrompt);
  options.request_id = "mine";
  mlcn_request* request = engine.Submit("{}", options);
  EXPECT_STREQ(mlcn_request_id(request), "mine");
  mlcn_request* second = nullptr;
  EXPECT_EQ(OutcomeOf([&](mlcn_error** e) {
              return mlcn_submit(engine, "{}", 2, &options, &second, e);
            }).field,
            "request_id");
  mlcn_request_cancel(request);
  ASSERT_EQ(mlcn_request_wait(request, MLCN_FOREVER, nullptr), MLCN_OK);
  options.user_data = &again;
  second = engine.Submit(kGreedy, options);  // the name is free again
  EXPECT_EQ(mlcn_request_wait(second, MLCN_FOREVER, nullptr), MLCN_OK);
  EXPECT_EQ(again.tokens.size(), 20u);
  mlcn_request_release(second);
  mlcn_request_release(request);
}

TEST(CApi, ANameThatTheEngineMakesIsNotInUse) {
  const HostedEngine engine("{\"us_per_step\": 200, \"cost\": \"sleep\"}");
  Received received, unnamed;
  mlcn_submit_options options = OptionsFor(&received, kPrompt);
  options.request_id = "request-1";
  mlcn_request* request = engine.Submit("{}", options);
  mlcn_request* second = engine.Submit(kGreedy, OptionsFor(&unnamed, kPrompt));
  ASSERT_NE(second, nullptr);
  EXPECT_STREQ(mlcn_request_id(second), "request-2");
  EXPECT_EQ(mlcn_request_wait(second, MLCN_FOREVER, nullptr), MLCN_OK);
  EXPECT_EQ(unnamed.tokens.size(), 20u);
  mlcn_request_cancel(request);
  EXPECT_EQ(mlcn_request_wait(request, MLCN_FOREVER, nullptr), MLCN_OK);
  mlcn_request_release(second);
  mlcn_request_release(request);
}

TEST(CApi, ACancelledRequestThatHasEndedIsNotTheNextOfItsName) {
  const HostedEngine engine("{\"us_per_step\": 200, \"cost\": \"sleep\"}");
  Received received, again;
  mlcn_submit_options options = OptionsFor(&received, kPrompt);
  options.request_id = "mine";
  mlcn_request* first = engine.Submit("{\"temperature\": 0, \"max_tokens\": 1}", options);
  ASSERT_EQ(mlcn_request_wait(first, MLCN_FOREVER, nullptr), MLCN_OK);
  options.user_data = &again;
  mlcn_request* second = engine.Submit(kGreedy, options);
  mlcn_request_cancel(first);
  EXPECT_EQ(mlcn_request_wait(second, MLCN_FOREVER, nullptr), MLCN_OK);
  EXPECT_EQ(again.reasons, std::vector<int32_t>{MLCN_FINISH_LENGTH});
  mlcn_request_release(second);
  mlcn_request_release(first);
}

TEST(CApi, PinsAPrompt) {
  const HostedEngine engine;
  Received received;
  std::vector<int32_t> prompt(64, 7);
  mlcn_request* request = engine.Submit(kGreedy, OptionsFor(&received, prompt));
  ASSERT_EQ(mlcn_request_wait(request, MLCN_FOREVER, nullptr), MLCN_OK);
  mlcn_request_release(request);
  int64_t pin = -1;
  EXPECT_EQ(mlcn_pin_prefix(engine, prompt.data(), 32, &pin, nullptr), MLCN_OK);
  EXPECT_EQ(mlcn_unpin_prefix(engine, pin, nullptr), MLCN_OK);
  EXPECT_EQ(mlcn_unpin_prefix(engine, pin, nullptr), MLCN_INVALID_REQUEST);
}

TEST(CApi, ThreadsHaveNames) {
  const HostedEngine engine;
  Received received;
  mlcn_request* request = engine.Submit(kGreedy, OptionsFor(&received, kPrompt));
  ASSERT_EQ(mlcn_request_wait(request, MLCN_FOREVER, nullptr), MLCN_OK);
  mlcn_request_release(request);
  std::vector<std::string> names;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(thread.path() / "comm");
    std::getline(file, names.emplace_back());
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf({"mlcn-engine", "mlcn-outputs"}));
}

TEST(CApi, MetricsAndVersion) {
  const HostedEngine engine;
  char* json = nullptr;
  size_t length = 0;
  ASSERT_EQ(mlcn_engine_metrics(engine, &json, &length, nullptr), MLCN_OK);
  EXPECT_EQ(std::strlen(json), length);
  EXPECT_EQ(json[0], '{');
  mlcn_free(json);
  EXPECT_EQ(mlcn_abi_version() >> 16, uint32_t{MLCN_ABI_MAJOR});
  EXPECT_NE(std::string(mlcn_version()), "");
}

}  // namespace
}  // namespace mlc_native::testing
