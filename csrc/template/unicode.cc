#include "template/unicode.h"

#include <algorithm>
#include <array>

#include "template/text.h"

namespace mlc_native::templates {
namespace {

struct CodePoints {
  uint32_t first;
  uint32_t last;
};

// Blocks in which every code point is assigned, and is no control and no space.
constexpr std::array kPrintable{
    CodePoints{0xA1, 0xAC},      CodePoints{0xAE, 0x377},    CodePoints{0x38E, 0x3A1},
    CodePoints{0x3A3, 0x52F},    CodePoints{0x5D0, 0x5EA},   CodePoints{0x620, 0x6DC},
    CodePoints{0x905, 0x939},    CodePoints{0xE01, 0xE3A},   CodePoints{0x1E00, 0x1F15},
    CodePoints{0x2010, 0x2027},  CodePoints{0x2030, 0x205E}, CodePoints{0x20A0, 0x20BF},
    CodePoints{0x2100, 0x218B},  CodePoints{0x2190, 0x2426}, CodePoints{0x2460, 0x2B73},
    CodePoints{0x3001, 0x303F},  CodePoints{0x3041, 0x3096}, CodePoints{0x3099, 0x30FF},
    CodePoints{0x4E00, 0x9FFC},  CodePoints{0xAC00, 0xD7A3}, CodePoints{0xFF01, 0xFFBE},
    CodePoints{0x1F300, 0x1F6D7}};

}  // namespace

bool IsSpace(uint32_t code_point) {
  if (code_point < 0x80) {
    return code_point == ' ' || (code_point >= 9 && code_point <= 13) ||
           (code_point >= 0x1C && code_point <= 0x1F);
  }
  return code_point == 0x85 || code_point == 0xA0 || code_point == 0x1680 ||
         (code_point >= 0x2000 && code_point <= 0x200A) || code_point == 0x2028 ||
         code_point == 0x2029 || code_point == 0x202F || code_point == 0x205F ||
         code_point == 0x3000;
}

uint32_t NextCodePoint(std::string_view text, size_t* at) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<uint8_t>(text[*at + i]));
  };
  const uint32_t first = byte(0);
  const size_t size = CodePointSize(text[*at]);
  uint32_t code_point = size == 1 ? first : first & (0xFFu >> (size + 1));
  for (size_t i = 1; i < size; ++i) code_point = code_point << 6 | (byte(i) & 0x3F);
  *at += size;
  return code_point;
}

size_t LeadingSpace(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size(); end = at) {
    if (!IsSpace(NextCodePoint(text, &at))) break;
  }
  return end;
}

size_t TrailingSpace(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    size_t at = begin - 1;
    while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
    const size_t start = at;
    if (!IsSpace(NextCodePoint(text, &at))) break;
    begin = start;
  }
  return text.size() - begin;
}

std::optional<bool> IsPrintable(uint32_t code_point) {
  if (code_point < 0x80) return code_point >= 0x20 && code_point < 0x7F;
  if (code_point <= 0xA0 || code_point == 0xAD || IsSpace(code_point)) return false;
  for (const CodePoints& block : kPrintable) {
    if (code_point >= block.first && code_point <= block.last) return true;
  }
  return std::nullopt;
}

std::optional<bool> IsIdentifier(std::string_view text) {
  if (std::ranges::any_of(text, [](char c) { return static_cast<uint8_t>(c) >= 0x80; })) {
    return std::nullopt;
  }
  const auto belongs = [](char c) { return IsAsciiLetter(c) || IsAsciiDigit(c) || c == '_'; };
  return !text.empty() && !IsAsciiDigit(text[0]) && std::ranges::all_of(text, belongs);
}

}  // namespace mlc_native::templates
