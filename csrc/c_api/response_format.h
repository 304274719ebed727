// The member "response_format" of a body. Pure; any thread.
#pragma once

#include <string_view>

#include "mlc_native/detail/generation_config.h"
#include "support/config_fields.h"

namespace mlc_native::c_api {

// `raw` is the text of the member, since a schema's order of properties counts. Throws through
// the fields' thrower.
ResponseFormat ReadResponseFormat(const ConfigFields& body, std::string_view raw);

}  // namespace mlc_native::c_api
