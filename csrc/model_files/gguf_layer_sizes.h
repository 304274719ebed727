// What the metadata of a GGUF file says of layers that differ in their sizes (Gemma 4), with the
// fields of config.json: heads, feed-forward blocks, layers that read the keys and values of
// others, inputs of layers, and ropes. Pure; any thread.
#pragma once

#include <string_view>

#include "model_files/gguf_parts.h"
#include "support/json.h"

namespace mlc_native {

// Adds the fields to the object that is open in `json`. Throws LoadError, which names the key.
void WriteGgufLayerSizes(const GgufParts& parts, std::string_view family, JsonWriter& json);

}  // namespace mlc_native
