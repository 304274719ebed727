// What a model folder says of the embeddings that are made with it. Pure function of the folder;
// any thread.
#pragma once

#include <string>

#include "mlc_native/config.h"

namespace mlc_native {

// Reads modules.json and the config.json of its Pooling, as sentence-transformers writes them, or
// the pooling type of a GGUF file. Throws LoadError for a file that is damaged; what is asked for
// and not supported is a refusal of the result.
EmbeddingDefaults ReadEmbeddingDefaults(const std::string& model_path);

}  // namespace mlc_native
