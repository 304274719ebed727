// What config.json, generation_config.json and tokenizer_config.json of a model would say, made of
// the metadata of a GGUF file: the keys of llama.cpp under the names of transformers. Pure; any
// thread.
#pragma once

#include <string>

#include "model_files/gguf_file.h"
#include "model_files/gguf_parts.h"

namespace mlc_native {

std::string GgufConfigJson(const GgufParts& parts);
std::string GgufTokenizerConfigJson(const GgufFile& file);

// Whether the file says how its authors sample.
bool HasGgufSampling(const GgufFile& file);
std::string GgufGenerationConfigJson(const GgufFile& file);

}  // namespace mlc_native
