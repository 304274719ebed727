// TokenDecoder turns the spelling of a token in a vocabulary into the bytes that it adds to a text.
// Used while a TokenTable is loaded; immutable after building.
//
// It is a chain of steps, the "decoder" of tokenizer.json. Each step works on a single token. The
// only step on the whole text drops the first space (strip_leading_space). Decoders that need more
// (BPEDecoder, CTC) are not supported, because their text could not be streamed.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "support/byte_level.h"

namespace mlc_native {

// The longest known token has 2 KB. A chain of Replace steps can double a token with each step.
inline constexpr size_t kMaxTokenBytes = size_t{64} << 10;

class TokenTooLong : public std::runtime_error {
 public:
  TokenTooLong();
};

namespace decoder_step {

struct ByteLevel {
  ByteLevelAlphabet alphabet;
};
struct ByteFallback {};  // "<0xE4>" is one byte
struct Replace {         // replaces every occurrence
  std::string pattern;
  std::string content;
};
struct Strip {  // strips `content` up to `start` times at the beginning and `stop` times at the end
  std::string content;
  int64_t start = 0;
  int64_t stop = 0;
};
struct WordPiece {  // a token without the prefix begins a new word
  std::string prefix;
  bool cleanup = false;  // no space before punctuation and English contractions
};

}  // namespace decoder_step

struct TokenDecoder {
  using Step = std::variant<decoder_step::ByteLevel, decoder_step::ByteFallback,
                            decoder_step::Replace, decoder_step::Strip, decoder_step::WordPiece>;
  std::vector<Step> steps;
  bool strip_leading_space = false;

  // Returns the bytes of a token. Added tokens are spelled literally, not in the byte-level
  // alphabet. Adds to `work` what it took: bytes, of a Replace step times the length of its
  // pattern. Throws TokenTooLong if a step makes more than kMaxTokenBytes of a token.
  std::string Decode(const std::string& token, bool is_added, size_t* work) const;
};

}  // namespace mlc_native
