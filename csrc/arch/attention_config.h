// The sizes of a choice of keys, of compressed attention and of hyper-connections, as numbers of a
// decoder (model_config.h). A value; any thread.
#pragma once

#include <cstdint>

namespace mlc_native {

// A choice of keys: each query attends to the num_chosen keys up to its position that score best by
// an index, or to all if there are no more. A score is a sum over the heads of the index: that
// head's weight for the query's row times max(0, q.k), where all heads read one key of head_dim
// elements for each token. Their first LatentConfig::rope_dim elements are rotated.
struct KeyChoiceConfig {
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t num_chosen = 0;

  int64_t queries_size() const { return num_heads * head_dim; }
};

// Compressed attention (kernels/compression.h): all heads read one key of a token, which is its
// value, too. Queries come from q_rank numbers; what the heads give is undone of its rotation, and
// each of out_groups groups of heads becomes out_rank numbers, which kOut reads. The last elements
// of a head are rotated.
struct CompressionConfig {
  int64_t q_rank = 0;
  int64_t out_groups = 0;
  int64_t out_rank = 0;
  KeyChoiceConfig index{};  // of the layers that choose entries, whose keys are entries, too

  int64_t out_size() const { return out_groups * out_rank; }
};

// Hyper-connections: a row has several hidden states in place of one, and each block of a layer
// reads a sum of all of them (kernels/residual_streams.h).
struct HyperConnectionConfig {
  int64_t count = 0;
  int64_t rounds = 0;  // of the norms of sums
  float floor = 0;
};

}  // namespace mlc_native
