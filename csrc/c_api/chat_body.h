// What a chat template is given of the body of a chat completion. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "c_api/model_text.h"
#include "c_api/raw_json.h"
#include "mlc_native/config.h"
#include "support/config_fields.h"

namespace mlc_native::c_api {

// The fields of a body that its prompt depends on.
const std::vector<std::string>& ChatFields();

// What the template of a model is rendered with: messages as templates expect them (one text each,
// the arguments of calls as objects), tools, and so on. `raw` has the members of the same body, in
// the order of the text.
ChatInput ReadChatInput(const ConfigFields& fields, const RawMembers& raw,
                        const EngineConfig& config);

}  // namespace mlc_native::c_api
