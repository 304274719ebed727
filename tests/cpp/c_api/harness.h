// An engine of the C API on the fake model, and what a host keeps of the outputs of a request.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "mlc_native/mlc_native.h"
#include "testing/temp_folder.h"

namespace mlc_native::testing {

inline const std::vector<int32_t> kPrompt = {1, 2, 3, 4, 5};
inline constexpr const char* kGreedy = "{\"temperature\": 0, \"max_tokens\": 20}";

// What has come of one request. Its address is the request's user data.
struct Received {
  std::mutex mutex;
  std::vector<int32_t> tokens;
  std::vector<int32_t> reasons;  // of answers that have ended
  int num_finals = 0;
  int num_after_final = 0;
  mlcn_usage usage{};

  static void Add(const mlcn_output* output) {
    auto& self = *static_cast<Received*>(output->user_data);
    const std::lock_guard lock(self.mutex);
    self.num_after_final += self.num_finals > 0;
    self.tokens.insert(self.tokens.end(), output->tokens, output->tokens + output->num_tokens);
    if (output->finish_reason != MLCN_FINISH_NONE) self.reasons.push_back(output->finish_reason);
    self.num_finals += output->is_final;
    if (output->usage != nullptr) self.usage = *output->usage;
  }
};

inline mlcn_submit_options OptionsFor(Received* received, const std::vector<int32_t>& prompt) {
  mlcn_submit_options options = MLCN_SUBMIT_OPTIONS_INIT;
  options.on_output = Received::Add;
  options.user_data = received;
  options.tokens = prompt.data();
  options.num_tokens = prompt.size();
  return options;
}

class HostedEngine {
 public:
  explicit HostedEngine(const std::string& fake = "{}") {
    folder_.Write("config.json", "{\"fake\": " + fake + '}');
    config_ = std::string("{\"model_lib\": \"") + MLC_NATIVE_FAKE_MODEL + "\"}";
    Create();
  }
  ~HostedEngine() { EXPECT_EQ(mlcn_engine_destroy(engine_, nullptr), MLCN_OK); }

  operator mlcn_engine*() const { return engine_; }  // NOLINT(google-explicit-constructor)
  const char* config() const { return config_.c_str(); }
  std::string path() const { return folder_.path(); }

  // The handle of a request with this prompt; null if it was refused.
  mlcn_request* Submit(const std::string& body, const mlcn_submit_options& options) const {
    mlcn_request* request = nullptr;
    mlcn_error* error = nullptr;
    mlcn_submit(engine_, body.c_str(), body.size(), &options, &request, &error);
    EXPECT_EQ(error, nullptr) << mlcn_error_message(error);
    mlcn_error_release(error);
    return request;
  }

 private:
  void Create() {
    mlcn_error* error = nullptr;
    mlcn_engine_create(folder_.path().c_str(), config_.c_str(), nullptr, &engine_, &error);
    EXPECT_EQ(error, nullptr) << mlcn_error_message(error);
    mlcn_error_release(error);
  }

  TempFolder folder_;
  std::string config_;
  mlcn_engine* engine_ = nullptr;
};

// The code and the field of the error that a call reports; the message names the field.
struct Outcome {
  int32_t code;
  std::string field;
  std::string message;
};
template <typename Function>
Outcome OutcomeOf(Function call) {
  mlcn_error* error = nullptr;
  const int32_t code = call(&error);
  EXPECT_EQ(code, mlcn_error_code(error));
  Outcome outcome{code, mlcn_error_field(error), mlcn_error_message(error)};
  mlcn_error_release(error);
  return outcome;
}

}  // namespace mlc_native::testing
