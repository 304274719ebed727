// Vocabulary: what the tokens of a scenario spell. A pure function of the random stream.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "mlc_native/tokenizer.h"
#include "sim/random.h"

namespace mlc_native::sim {

struct Vocabulary {
  std::shared_ptr<const TokenTable> table;
  // The tokenizer.json of the same tokens. Empty: texts cannot be encoded, so jump-forward decoding
  // is off.
  std::string tokenizer_json;
};

// Single letters, longer pieces, parts of characters, a space, and tokens without text, each any
// number of times.
Vocabulary DrawPieces(SimRandom rng, int64_t vocab_size);

// A byte-level BPE vocabulary: letters, a space, the bytes of one character, and merges of these.
// Every text of its letters can be encoded, mostly in fewer tokens than letters.
Vocabulary DrawMerges(SimRandom rng, int64_t vocab_size);

}  // namespace mlc_native::sim
