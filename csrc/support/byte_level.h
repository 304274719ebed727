// GPT-2's map between characters and bytes. Printable Latin-1 characters stand for themselves; the
// other 68 bytes are U+0100 and the following characters, in order (bytes_to_unicode in
// openai/gpt-2, src/encoder.py). Immutable; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace mlc_native {

class ByteLevelAlphabet {
 public:
  ByteLevelAlphabet();
  // Returns -1 if the character stands for no byte.
  int ByteOf(char32_t code_point) const {
    return code_point < bytes_.size() ? bytes_[code_point] : -1;
  }
  // The characters of bytes.
  std::string Spell(std::string_view bytes) const;

 private:
  std::array<int16_t, 0x144> bytes_;
  std::array<char32_t, 256> characters_;
};

}  // namespace mlc_native
