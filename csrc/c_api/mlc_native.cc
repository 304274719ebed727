// The functions of mlc_native.h about engines, requests and text. Each checks its arguments and
// asks HostEngine; what may throw runs within Call.
#include "mlc_native/mlc_native.h"

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "c_api/call.h"
#include "c_api/host_engine.h"
#include "c_api/request_body.h"
#include "observe/prometheus.h"

namespace mlc_native::c_api {
namespace {

// Of version 1.0, which ended with these members.
constexpr uint32_t kFirstEngineOptions = offsetof(mlcn_engine_options, user_data) + sizeof(void*);
constexpr uint32_t kFirstSubmitOptions = offsetof(mlcn_submit_options, num_tokens) + sizeof(size_t);

HostEngine& HostOf(mlcn_engine* engine) {
  HostEngine& host = *Required(engine, "engine").host;
  host.RefuseAfterFork();
  return host;
}

std::string ConfigArgument(const char* config) {
  return config == nullptr ? "{}" : std::string(TextArgument(config, "config"));
}

// Null: no deadline.
std::optional<std::chrono::steady_clock::time_point> DeadlineArgument(int64_t timeout_ms) {
  if (timeout_ms < MLCN_FOREVER) {
    ThrowInvalidArgument("timeout_ms",
                         "must be MLCN_FOREVER or at least 0, got " + std::to_string(timeout_ms));
  }
  constexpr int64_t kMost = int64_t{1000} * 3600 * 24 * 365;  // the clock cannot add much more
  if (timeout_ms == MLCN_FOREVER || timeout_ms > kMost) return std::nullopt;
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
}

Log LogArgument(const mlcn_engine_options& options) {
  if (options.log_level < MLCN_LOG_OFF || options.log_level > MLCN_LOG_INFO) {
    ThrowInvalidArgument("options.log_level",
                         "must be one of MLCN_LOG_..., got " + std::to_string(options.log_level));
  }
  if (options.reserved != 0) ThrowInvalidArgument("options.reserved", "must be 0");
  Log log{.function = {}, .level = static_cast<LogLevel>(options.log_level)};
  if (options.on_log != nullptr) {
    log.function = [on_log = options.on_log, user_data = options.log_user_data](
                       LogLevel level, std::string_view message) {
      on_log(user_data, static_cast<int32_t>(level), std::string(message).c_str());
    };
  }
  return log;
}

void SetText(std::string_view text, char** out, size_t* length) {
  *out = NewText(text);
  if (length != nullptr) *length = text.size();
}

}  // namespace
}  // namespace mlc_native::c_api

using namespace mlc_native::c_api;  // NOLINT(google-build-using-namespace): this file is their API

extern "C" {

// ---- engines

int32_t mlcn_engine_create(const char* model, const char* config,
                           const mlcn_engine_options* options, mlcn_engine** engine,
                           mlcn_error** error) {
  if (engine != nullptr) *engine = nullptr;
  return Call(error, [&] {
    Required(engine, "engine");
    const mlcn_engine_options given = StructArgument(
        options, mlcn_engine_options MLCN_ENGINE_OPTIONS_INIT, kFirstEngineOptions, "options");
    mlc_native::LoadProgress progress;
    if (given.on_progress != nullptr) {
      progress = [given](int64_t done, int64_t total) {
        given.on_progress(given.user_data, done, total);
      };
    }
    auto handle = std::make_unique<mlcn_engine>();
    handle->host = HostEngine::Create(
        std::string(TextArgument(model, "model")), ConfigArgument(config),
        given.device == nullptr ? "auto" : std::string(TextArgument(given.device, "device")),
        std::move(progress), LogArgument(given));
    *engine = handle.release();
  });
}

int32_t mlcn_engine_reload(mlcn_engine* engine, const char* model, const char* config,
                           mlcn_error** error) {
  return Call(error, [&] {
    HostOf(engine).Reload(std::string(TextArgument(model, "model")), ConfigArgument(config));
  });
}

int32_t mlcn_engine_stop(mlcn_engine* engine, mlcn_error** error) {
  return Call(error, [&] { HostOf(engine).Stop(); });
}

int32_t mlcn_engine_destroy(mlcn_engine* engine, mlcn_error** error) {
  return Call(error, [&] {
    if (engine == nullptr) return;
    if (engine->host->IsForked()) {
      // Locks may be held by threads that this process does not have: all that is behind the handle
      // stays as it is.
      static_cast<void>(new std::shared_ptr<HostEngine>(engine->host));
    } else {
      engine->host->Stop();
    }
    delete engine;
  });
}

int32_t mlcn_engine_cancel_all(mlcn_engine* engine, mlcn_error** error) {
  return Call(error, [&] { HostOf(engine).CancelAll(); });
}

int32_t mlcn_engine_info(mlcn_engine* engine, char** json, size_t* length, mlcn_error** error) {
  if (json != nullptr) *json = nullptr;
  return Call(error, [&] {
    Required(json, "json");
    SetText(HostOf(engine).Info(), json, length);
  });
}

int32_t mlcn_engine_metrics(mlcn_engine* engine, char** json, size_t* length, mlcn_error** error) {
  if (json != nullptr) *json = nullptr;
  return Call(error, [&] {
    Required(json, "json");
    SetText(HostOf(engine).Metrics(), json, length);
  });
}

int32_t mlcn_engine_metrics_prometheus(mlcn_engine* engine, char** text, size_t* length,
                                       mlcn_error** error) {
  if (text != nullptr) *text = nullptr;
  return Call(error, [&] {
    Required(text, "text");
    SetText(mlc_native::PrometheusText(HostOf(engine).Metrics()), text, length);
  });
}

// ---- requests

int32_t mlcn_submit(mlcn_engine* engine, const char* body, size_t body_length,
                    const mlcn_submit_options* options, mlcn_request** request,
                    mlcn_error** error) {
  if (request != nullptr) *request = nullptr;
  return Call(error, [&] {
    Required(request, "request");
    HostEngine& host = HostOf(engine);
    const mlcn_submit_options given = StructArgument(
        options, mlcn_submit_options MLCN_SUBMIT_OPTIONS_INIT, kFirstSubmitOptions, "options");
    SubmitArguments arguments{.on_output = given.on_output, .user_data = given.user_data};
    if (given.request_id != nullptr) {
      arguments.request_id = std::string(TextArgument(given.request_id, "request_id"));
    }
    if (given.tokens != nullptr || given.num_tokens > 0) {
      arguments.tokens = TokensArgument(given.tokens, given.num_tokens, "tokens");
    }
    host.Submit(TextArgument(body, body_length, "body"), arguments, request);
  });
}

void mlcn_request_cancel(mlcn_request* request) {
  if (request == nullptr) return;
  Call(nullptr, [&] {
    const auto host = request->engine.lock();
    if (host != nullptr && !host->IsForked()) host->Cancel(*request);
  });
}

int32_t mlcn_request_wait(mlcn_request* request, int64_t timeout_ms, mlcn_error** error) {
  return Call(error, [&] {
    Required(request, "request");
    const auto deadline = DeadlineArgument(timeout_ms);
    const auto host = request->engine.lock();
    if (host != nullptr) host->RefuseAfterFork();
    if (request->finished()) return;
    if (host != nullptr) host->RefuseInCallback("wait for a request");
    if (request->Wait(deadline)) return;
    throw CallError(MLCN_TIMEOUT, "timeout_ms", "the request has not ended yet");
  });
}

const char* mlcn_request_id(const mlcn_request* request) {
  return request == nullptr ? "" : request->id.c_str();
}

void mlcn_request_release(mlcn_request* request) {
  if (request != nullptr) request->Release();
}

// ---- polling

int32_t mlcn_poll(mlcn_engine* engine, size_t max_outputs, int64_t timeout_ms,
                  mlcn_outputs** outputs, mlcn_error** error) {
  if (outputs != nullptr) *outputs = nullptr;
  return Call(error, [&] {
    Required(outputs, "outputs");
    HostEngine& host = HostOf(engine);
    if (max_outputs == 0) ThrowInvalidArgument("max_outputs", "must be at least 1, got 0");
    const auto deadline = DeadlineArgument(timeout_ms);
    if (timeout_ms != 0) host.RefuseInCallback("wait for outputs");
    *outputs = host.Poll(max_outputs, deadline).release();
  });
}

size_t mlcn_outputs_count(const mlcn_outputs* outputs) {
  return outputs == nullptr ? 0 : outputs->size();
}

const mlcn_output* mlcn_outputs_at(const mlcn_outputs* outputs, size_t i) {
  return i < mlcn_outputs_count(outputs) ? outputs->at(i) : nullptr;
}

void mlcn_outputs_release(mlcn_outputs* outputs) { delete outputs; }

int32_t mlcn_event_fd(mlcn_engine* engine) {
  return engine == nullptr ? -1 : engine->host->event_fd();
}

// ---- text and tokens

int32_t mlcn_tokenize(mlcn_engine* engine, const char* text, size_t length, uint32_t flags,
                      int32_t** tokens, size_t* num_tokens, mlcn_error** error) {
  if (tokens != nullptr) *tokens = nullptr;
  return Call(error, [&] {
    Required(tokens, "tokens");
    Required(num_tokens, "num_tokens");
    const std::vector<int32_t> ids = HostOf(engine).model()->text->Encode(
        TextArgument(text, length, "text"), (flags & MLCN_ADD_SPECIAL_TOKENS) != 0);
    *tokens = NewTokens(ids);
    *num_tokens = ids.size();
  });
}

int32_t mlcn_detokenize(mlcn_engine* engine, const int32_t* tokens, size_t num_tokens,
                        uint32_t flags, char** text, size_t* length, mlcn_error** error) {
  if (text != nullptr) *text = nullptr;
  return Call(error, [&] {
    Required(text, "text");
    SetText(HostOf(engine).model()->text->Decode(TokensArgument(tokens, num_tokens, "tokens"),
                                                 (flags & MLCN_SKIP_SPECIAL_TOKENS) != 0),
            text, length);
  });
}

int32_t mlcn_apply_chat_template(mlcn_engine* engine, const char* body, size_t body_length,
                                 char** prompt, size_t* length, mlcn_error** error) {
  if (prompt != nullptr) *prompt = nullptr;
  return Call(error, [&] {
    Required(prompt, "prompt");
    const auto model = HostOf(engine).model();
    SetText(RenderChatBody(TextArgument(body, body_length, "body"), *model).text, prompt, length);
  });
}

// ---- pins

int32_t mlcn_pin_prefix(mlcn_engine* engine, const int32_t* tokens, size_t num_tokens,
                        int64_t* pin_id, mlcn_error** error) {
  return Call(error, [&] {
    Required(pin_id, "pin_id");
    *pin_id = HostOf(engine).PinPrefix(TokensArgument(tokens, num_tokens, "tokens"));
  });
}

int32_t mlcn_unpin_prefix(mlcn_engine* engine, int64_t pin_id, mlcn_error** error) {
  return Call(error, [&] { HostOf(engine).UnpinPrefix(pin_id); });
}

// ---- adapters

int32_t mlcn_load_adapter(mlcn_engine* engine, const char* name, const char* path,
                          mlcn_error** error) {
  return Call(error, [&] {
    HostEngine& host = HostOf(engine);
    const std::string adapter(TextArgument(name, "name"));
    host.LoadAdapter(adapter, std::string(TextArgument(path, "path")));
  });
}

int32_t mlcn_unload_adapter(mlcn_engine* engine, const char* name, mlcn_error** error) {
  return Call(error,
              [&] { HostOf(engine).UnloadAdapter(std::string(TextArgument(name, "name"))); });
}

}  // extern "C"
