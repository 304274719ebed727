#include "support/utf8.h"

#include <cstring>

#include "support/check.h"

namespace mlc_native {
namespace {

// What may follow a first byte: Unicode 15, table 3-7. Only the second byte has a range of its own.
struct Sequence {
  uint8_t length;  // bytes of the character; 0 when no character begins so
  uint8_t second_min;
  uint8_t second_max;
};

Sequence SequenceOf(uint8_t first) {
  if (first < 0x80) return {1, 0, 0};
  if (first < 0xC2) return {0, 0, 0};  // continuation bytes, overlong C0 and C1
  if (first < 0xE0) return {2, 0x80, 0xBF};
  if (first == 0xE0) return {3, 0xA0, 0xBF};  // below: overlong
  if (first == 0xED) return {3, 0x80, 0x9F};  // above: surrogates
  if (first < 0xF0) return {3, 0x80, 0xBF};
  if (first == 0xF0) return {4, 0x90, 0xBF};  // below: overlong
  if (first < 0xF4) return {4, 0x80, 0xBF};
  if (first == 0xF4) return {4, 0x80, 0x8F};  // above: beyond U+10FFFF
  return {0, 0, 0};
}

uint8_t ByteAt(std::string_view bytes, size_t index) { return static_cast<uint8_t>(bytes[index]); }

// Number of bytes below 0x80 at the beginning.
size_t AsciiPrefix(std::string_view bytes) {
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    if ((word & 0x8080808080808080ULL) != 0) break;
  }
  while (i < bytes.size() && ByteAt(bytes, i) < 0x80) ++i;
  return i;
}

}  // namespace

Utf8Step ReadUtf8(std::string_view bytes) {
  const Sequence sequence = SequenceOf(ByteAt(bytes, 0));
  if (sequence.length == 0) return {Utf8Status::kInvalid, 1};
  for (size_t i = 1; i < sequence.length; ++i) {
    if (i == bytes.size()) return {Utf8Status::kIncomplete, i};
    const uint8_t min = i == 1 ? sequence.second_min : 0x80;
    const uint8_t max = i == 1 ? sequence.second_max : 0xBF;
    if (ByteAt(bytes, i) < min || ByteAt(bytes, i) > max) return {Utf8Status::kInvalid, i};
  }
  return {Utf8Status::kValid, sequence.length};
}

bool IsAscii(std::string_view bytes) { return AsciiPrefix(bytes) == bytes.size(); }

bool IsValidUtf8(std::string_view bytes) {
  for (size_t i = AsciiPrefix(bytes); i < bytes.size();) {
    const Utf8Step step = ReadUtf8(bytes.substr(i));
    if (step.status != Utf8Status::kValid) return false;
    i += step.length;
  }
  return true;
}

size_t AppendValidUtf8(std::string_view bytes, std::string* text) {
  size_t begin = 0;  // first byte that is checked but not appended yet
  size_t i = AsciiPrefix(bytes);
  while (i < bytes.size()) {
    const Utf8Step step = ReadUtf8(bytes.substr(i));
    if (step.status != Utf8Status::kValid) {
      text->append(bytes.substr(begin, i - begin));
      if (step.status == Utf8Status::kIncomplete) return step.length;
      text->append(kReplacementCharacter);
      begin = i + step.length;
    }
    i += step.length;
  }
  text->append(bytes.substr(begin));
  return 0;
}

std::string ToValidUtf8(std::string_view bytes) {
  std::string text;
  if (AppendValidUtf8(bytes, &text) > 0) text += kReplacementCharacter;
  return text;
}

void AppendCodePoint(uint32_t code_point, std::string* text) {
  MLC_CHECK(code_point <= 0x10FFFF && (code_point < 0xD800 || code_point > 0xDFFF)) << code_point;
  const auto append = [text](uint32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    append(code_point);
    return;
  }
  if (code_point < 0x800) {
    append(0xC0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      append(0xE0 | code_point >> 12);
    } else {
      append(0xF0 | code_point >> 18);
      append(0x80 | (code_point >> 12 & 0x3F));
    }
    append(0x80 | (code_point >> 6 & 0x3F));
  }
  append(0x80 | (code_point & 0x3F));
}

std::optional<std::u32string> DecodeUtf8(std::string_view bytes) {
  std::u32string code_points;
  while (!bytes.empty()) {
    const Utf8Step step = ReadUtf8(bytes);
    if (step.status != Utf8Status::kValid) return std::nullopt;
    uint32_t code_point = ByteAt(bytes, 0);
    if (step.length > 1) code_point &= 0x7Fu >> step.length;
    for (size_t i = 1; i < step.length; ++i) {
      code_point = code_point << 6 | (ByteAt(bytes, i) & 0x3Fu);
    }
    code_points.push_back(code_point);
    bytes.remove_prefix(step.length);
  }
  return code_points;
}

}  // namespace mlc_native
