// What the metadata of a GGUF file says of layers with states, with the fields of config.json:
// which layers have short convolutions (LFM2) or Mamba-2 (Granite 4 H, Bamba, Falcon-H1,
// Nemotron-H), and the sizes of these and of linear attention (Qwen3-Next, Qwen3.5). Pure; any
// thread.
#pragma once

#include "model_files/gguf_families.h"
#include "model_files/gguf_parts.h"
#include "support/json.h"

namespace mlc_native {

// Adds the fields to the object that is open in `json`; of a family without such layers, none.
// Throws LoadError, which names the key.
void WriteGgufRecurrentLayers(const GgufParts& parts, const GgufFamily& family, JsonWriter& json);

}  // namespace mlc_native
