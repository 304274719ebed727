// Embeddings: what a simulation asks for, and what the fake model's oracle says that it gets. Pure
// functions.
#pragma once

#include <vector>

#include "mlc_native/detail/embedding_config.h"
#include "request/request.h"
#include "sim/random.h"
#include "sim/scenario.h"

namespace mlc_native::sim {

// Valid for the fake model; some of it is left to the defaults.
EmbeddingConfig DrawEmbedding(SimRandom& rng, bool whole_prompts);
// With numbers that the model does not have.
EmbeddingConfig DrawInvalidEmbedding(SimRandom& rng);

// The embedding of such a request, without any engine. Empty if states that it is made of are no
// numbers, or if the model fails with a token of the prompt.
std::vector<float> ExpectedEmbedding(const Scenario& scenario, const Request& request);

}  // namespace mlc_native::sim
