// The JSON body of a request, as OpenAI's chat completions, completions and embeddings have it:
// from the text to the prompt's tokens and the settings. Pure; any thread. Errors are
// InvalidRequest with the name of the member.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "c_api/host_model.h"
#include "mlc_native/config.h"
#include "mlc_native/detail/embedding_config.h"
#include "mlc_native/errors.h"

namespace mlc_native::c_api {

struct RequestBody {
  std::vector<int32_t> tokens;
  GenerationConfig generation;
  bool begins_turn = false;
  std::optional<EmbeddingConfig> embedding = {};  // of a body with "input"
};

// `tokens` is a prompt that the body does not have. Fields that the body leaves out have the
// model's defaults.
RequestBody ReadRequestBody(std::string_view body, const HostModel& model,
                            std::optional<std::span<const int32_t>> tokens);

// The prompt of the body of a chat completion.
RenderedPrompt RenderChatBody(std::string_view body, const HostModel& model);

// Calls a function whose errors about the prompt are about the "input" of a body.
template <typename Function>
auto WithErrorsAboutInput(Function function) {
  try {
    return function();
  } catch (const InvalidRequest& error) {
    if (error.field() != "prompt") throw;
    throw InvalidRequest("input", error.what());
  }
}

}  // namespace mlc_native::c_api
