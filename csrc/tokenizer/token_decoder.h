// TokenDecoder: from the way a vocabulary spells a token to the bytes that it adds to a text. Owned
// by the loading of a TokenTable; immutable after building.
//
// A chain of steps, the "decoder" of tokenizer.json. Each step works on one token alone; the only
// step on the whole text is the dropped first space (strip_leading_space). Decoders that need more
// than that (BPEDecoder, CTC) are not supported: text could not be streamed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace mlc_native {

// GPT-2's map from characters to bytes: printable Latin-1 stands for itself, the other 68 bytes for
// U+0100.. in order (bytes_to_unicode in openai/gpt-2, src/encoder.py).
class ByteLevelAlphabet {
 public:
  ByteLevelAlphabet();
  // -1 when the character stands for no byte.
  int ByteOf(char32_t code_point) const {
    return code_point < bytes_.size() ? bytes_[code_point] : -1;
  }

 private:
  std::array<int16_t, 0x144> bytes_;
};

namespace decoder_step {

struct ByteLevel {
  ByteLevelAlphabet alphabet;
};
struct ByteFallback {};  // "<0xE4>" is one byte
struct Replace {         // every occurrence
  std::string pattern;
  std::string content;
};
struct Strip {  // `content` at most `start` times at the beginning, `stop` times at the end
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

  // The bytes of a token. Added tokens are spelled literally, not in the byte-level alphabet.
  std::string Decode(const std::string& token, bool is_added) const;
};

}  // namespace mlc_native
