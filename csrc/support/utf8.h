// UTF-8 as Unicode defines it (no surrogates, no overlong forms, up to U+10FFFF). Pure; any thread.
//
// Invalid bytes are replaced by the rule of Unicode 15, section 3.9 ("substitution of maximal
// subparts"), which is also what Python's bytes.decode("utf-8", errors="replace") does: one U+FFFD
// for the longest prefix of a character that is no character, otherwise one per byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mlc_native {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8Status : uint8_t {
  kValid,       // the first `length` bytes are one character
  kInvalid,     // the first `length` bytes are to be replaced together
  kIncomplete,  // all the bytes there are begin a character; more may complete it
};

struct Utf8Step {
  Utf8Status status;
  size_t length;  // bytes, >= 1
};

// What stands at the beginning of `bytes` (not empty).
Utf8Step ReadUtf8(std::string_view bytes);

// Every byte below 0x80.
bool IsAscii(std::string_view bytes);
bool IsValidUtf8(std::string_view bytes);

// Appends `bytes` with invalid ones replaced. Stops at an incomplete character at the end and
// returns its length in bytes (0 to 3): the caller keeps it, or replaces it by one U+FFFD.
size_t AppendValidUtf8(std::string_view bytes, std::string* text);

// Appends the encoding of a code point (at most U+10FFFF, no surrogate).
void AppendCodePoint(uint32_t code_point, std::string* text);

// The code points of valid UTF-8; nullopt when it is not valid.
std::optional<std::u32string> DecodeUtf8(std::string_view bytes);

}  // namespace mlc_native
