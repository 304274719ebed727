// What a chat template is given of the body of a chat completion. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "c_api/raw_json.h"
#include "mlc_native/config.h"
#include "support/config_fields.h"

namespace mlc_native::c_api {

// The fields of a body that its prompt depends on.
const std::vector<std::string>& ChatFields();

// The JSON object of the template's variables: messages as templates expect them (one text each,
// the arguments of calls as objects), tools, and so on. `raw` has the members of the same body, in
// the order of the text.
std::string ChatVariables(const ConfigFields& fields, const RawMembers& raw,
                          const EngineConfig& config);

}  // namespace mlc_native::c_api
