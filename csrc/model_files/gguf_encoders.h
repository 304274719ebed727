// What a GGUF file says of an encoder (BERT, ModernBERT, EuroBERT, NomicBERT) besides its sizes,
// with the fields of config.json: text types, classes and windows. Pure; any thread.
#pragma once

#include "model_files/gguf_families.h"
#include "model_files/gguf_parts.h"
#include "support/json.h"

namespace mlc_native {

// Whether the file is of a family of encoders; false for one that is not known.
bool IsGgufEncoder(const GgufFile& file);

// Whether an encoder has what makes classes of the state of a text.
bool HasGgufClasses(const GgufParts& parts);

// Adds the fields to the object that is open in `json`. Throws LoadError, which names the key or
// the tensor.
void WriteGgufEncoder(const GgufParts& parts, const GgufFamily& family, JsonWriter& json);

}  // namespace mlc_native
