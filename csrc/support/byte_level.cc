#include "support/byte_level.h"

#include "support/utf8.h"

namespace mlc_native {

ByteLevelAlphabet::ByteLevelAlphabet() {
  bytes_.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    const char32_t character = printable ? static_cast<char32_t>(byte) : next++;
    bytes_[character] = static_cast<int16_t>(byte);
    characters_[byte] = character;
  }
}

std::string ByteLevelAlphabet::Spell(std::string_view bytes) const {
  std::string text;
  for (const char byte : bytes) AppendCodePoint(characters_[static_cast<uint8_t>(byte)], &text);
  return text;
}

}  // namespace mlc_native
