// What a model folder says of the embeddings that are made with it. Pure function of the folder;
// any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mlc_native/config.h"

namespace mlc_native {

// Reads modules.json and what its Pooling and its Dense modules have, as sentence-transformers
// writes them, or the pooling type of a GGUF file. Without a classifier, which is not among these
// modules. Throws LoadError for a file that is damaged; what is asked for
// and not supported is a refusal of the result.
EmbeddingDefaults ReadEmbeddingDefaults(const std::string& model_path);

// Whether modules.json or a GGUF file says which hidden state, or the mean of which, an embedding
// is. A file that pools by rank says nothing of embeddings. Throws LoadError.
bool SaysPooling(const std::string& model_path);

// The tokens whose logits the LogitScore of modules.json reads: the one that stands for yes, with
// the one for no in front of it if there is one. Empty without such a module. Throws LoadError.
std::vector<int32_t> ReadScoredTokens(const std::string& model_path);

}  // namespace mlc_native
