// The JSON body of a request, as OpenAI's chat completions and completions have it: from the text
// to the prompt's tokens and the settings. Pure; any thread. Errors are InvalidRequest with the
// name of the member.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "c_api/host_model.h"
#include "mlc_native/config.h"

namespace mlc_native::c_api {

struct RequestBody {
  std::vector<int32_t> tokens;
  GenerationConfig generation;
  bool begins_turn = false;
};

// `tokens` is a prompt that the body does not have. Fields that the body leaves out have the
// model's defaults.
RequestBody ReadRequestBody(std::string_view body, const HostModel& model,
                            std::optional<std::span<const int32_t>> tokens);

// The prompt of the body of a chat completion.
RenderedPrompt RenderChatBody(std::string_view body, const HostModel& model);

}  // namespace mlc_native::c_api
