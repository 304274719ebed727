// What the metadata of a GGUF file says of a decoder with residual streams (Gemma 3n), with the
// fields of config.json: the streams, LAuReL, feed-forward blocks and their gates, layers that read
// the keys and values of others, and inputs of layers. Pure; any thread.
#pragma once

#include <string_view>

#include "model_files/gguf_parts.h"
#include "support/json.h"

namespace mlc_native {

// Adds the fields to the object that is open in `json`. Throws LoadError, which names the key.
void WriteGgufStreams(const GgufParts& parts, std::string_view family, JsonWriter& json);

}  // namespace mlc_native
