// What the metadata of a GGUF file says of the rows of images, with the fields of config.json. The
// vision tower itself is in another file, which the Python package reads. Pure; any thread.
#pragma once

#include "model_files/gguf_families.h"
#include "model_files/gguf_file.h"
#include "support/json.h"

namespace mlc_native {

// Adds the fields to the object that is open in `json`: that of the model. Throws LoadError, which
// names the key.
void WriteGgufImages(const GgufFile& file, const GgufFamily& family, JsonWriter& json);

// Likewise to that of the rope.
void WriteGgufImagePositions(const GgufFile& file, const GgufFamily& family, JsonWriter& json);

}  // namespace mlc_native
