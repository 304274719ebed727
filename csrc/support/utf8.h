// UTF-8 as Unicode defines it: no surrogates, no overlong forms, up to U+10FFFF. Pure; any thread.
//
// Invalid bytes are replaced as in Unicode 15, section 3.9 ("substitution of maximal subparts"),
// and as in Python's bytes.decode("utf-8", errors="replace"): one U+FFFD for the longest incomplete
// prefix of a character, and otherwise one per byte.
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
  kInvalid,     // the first `length` bytes become one U+FFFD
  kIncomplete,  // all bytes together are the beginning of a character
};

struct Utf8Step {
  Utf8Status status;
  size_t length;  // bytes, >= 1
};

// Classifies the beginning of `bytes`. Requires: not empty.
Utf8Step ReadUtf8(std::string_view bytes);

// True if every byte is below 0x80.
bool IsAscii(std::string_view bytes);
bool IsValidUtf8(std::string_view bytes);

// Appends `bytes` with invalid ones replaced, except for an incomplete character at the end.
// Returns the length of that one in bytes (0 to 3); the caller keeps it or replaces it by one
// U+FFFD.
size_t AppendValidUtf8(std::string_view bytes, std::string* text);

// Returns `bytes` with invalid ones replaced by U+FFFD.
std::string ToValidUtf8(std::string_view bytes);

// Appends the encoding of a code point. Requires: at most U+10FFFF and no surrogate.
void AppendCodePoint(uint32_t code_point, std::string* text);

// Returns the code points, or nullopt if the text is not valid UTF-8.
std::optional<std::u32string> DecodeUtf8(std::string_view bytes);

}  // namespace mlc_native
