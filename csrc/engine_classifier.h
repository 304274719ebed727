// What a model classifies texts with: the matrix of a checkpoint that was trained for it, or rows
// of the head of a model that generates (rerankers such as Qwen3-Reranker). Pure functions of the
// folder and the settings; any thread.
#pragma once

#include <memory>

#include "checkpoint/dense_layers.h"
#include "mlc_native/config.h"
#include "mlc_native/tokenizer.h"

namespace mlc_native {

// Sets what makes the logits of classes of hidden states behind the final norm, and which of these
// it takes; nothing if neither the settings nor the folder say anything of classes. An encoder
// whose folder does not say how texts are embedded pools the first token. `tokens` may be null.
// Throws InvalidConfig that names classifier_from_token, LoadError.
void LoadClassifier(const EngineConfig& config, const TokenTable* tokens,
                    EmbeddingDefaults* defaults);

// Throws LoadError unless the layers take the hidden states of the model.
void CheckPooledLayers(const EmbeddingDefaults& defaults, const ModelMetadata& model);

}  // namespace mlc_native
