// What Python's texts know of characters, as far as a template needs it without tables of Unicode.
// Where tables would be needed, an answer is missing and the rendering is refused. Pure; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mlc_native::templates {

// str.isspace of one character.
bool IsSpace(uint32_t code_point);
// The bytes of white space that a text begins or ends with.
size_t LeadingSpace(std::string_view text);
size_t TrailingSpace(std::string_view text);
// The code point that begins at a byte; moves behind it. Requires: valid UTF-8, not at the end.
uint32_t NextCodePoint(std::string_view text, size_t* at);

// str.isprintable of a character, if it is known.
std::optional<bool> IsPrintable(uint32_t code_point);
// str.isidentifier; nothing for a text that is not ASCII.
std::optional<bool> IsIdentifier(std::string_view text);

inline bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }
inline bool IsAsciiUpper(char c) { return c >= 'A' && c <= 'Z'; }
inline bool IsAsciiLower(char c) { return c >= 'a' && c <= 'z'; }
inline bool IsAsciiLetter(char c) { return IsAsciiUpper(c) || IsAsciiLower(c); }
inline char ToAsciiUpper(char c) { return IsAsciiLower(c) ? static_cast<char>(c - 32) : c; }
inline char ToAsciiLower(char c) { return IsAsciiUpper(c) ? static_cast<char>(c + 32) : c; }

}  // namespace mlc_native::templates
