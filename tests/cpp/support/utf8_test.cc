#include "support/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/check.h"

namespace mlc_native {
namespace {

// Oracle by arithmetic on code points instead of tables of byte ranges.
bool IsCharacter(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const size_t n = bytes.size();
  if (n == 1) return byte(0) < 0x80;
  if (n < 2 || n > 4) return false;
  // n ones and a zero in front: 110, 1110, 11110.
  if (byte(0) >> (7 - n) != (0xFF >> (7 - n) & ~1)) return false;
  uint32_t code_point = byte(0) & (0x7F >> n);
  for (size_t i = 1; i < n; ++i) {
    if (byte(i) >> 6 != 0b10) return false;
    code_point = code_point << 6 | (byte(i) & 0x3F);
  }
  constexpr uint32_t kMin[] = {0, 0, 0x80, 0x800, 0x10000};
  return code_point >= kMin[n] && code_point <= 0x10FFFF &&
         (code_point < 0xD800 || code_point > 0xDFFF);
}

bool BeginsCharacter(const std::string& bytes) {
  if (IsCharacter(bytes)) return true;
  if (bytes.size() == 4) return false;
  // The lowest and the highest continuation bytes decide: the valid code points have one gap only.
  return BeginsCharacter(bytes + '\x80') || BeginsCharacter(bytes + '\xBF');
}

std::string OracleReplace(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    size_t length = 1;
    while (length < bytes.size() && length < 4 && !IsCharacter(bytes.substr(0, length)) &&
           BeginsCharacter(std::string(bytes.substr(0, length + 1)))) {
      ++length;
    }
    const std::string_view part = bytes.substr(0, length);
    text += IsCharacter(part) ? part : kReplacementCharacter;
    bytes.remove_prefix(length);
  }
  return text;
}

std::string RandomBytes(std::mt19937& random, size_t max_length) {
  // Mostly bytes at the borders of the ranges.
  static constexpr uint8_t kBytes[] = {'a',  '~',  0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0,
                                       0xBF, 0xC0, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEE,
                                       0xEF, 0xF0, 0xF3, 0xF4, 0xF5, 0xFF};
  std::string bytes(random() % (max_length + 1), '\0');
  for (char& byte : bytes) {
    byte =
        static_cast<char>(random() % 4 == 0 ? random() % 256 : kBytes[random() % sizeof(kBytes)]);
  }
  return bytes;
}

TEST(Utf8, ReplacesAsPythonDoes) {
  // bytes.decode("utf-8", errors="replace") of Python 3.11, "?" for U+FFFD.
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", ""},
      {"plain", "plain"},
      {"caf\xC3\xA9", "caf\xC3\xA9"},
      {"\xF0\x9F\xA4\x94", "\xF0\x9F\xA4\x94"},
      {"\x80", "?"},
      {"\x80\x80", "??"},
      {"\xC0\x80", "??"},
      {"\xC3(", "?("},
      {"\xE0\x80\x80", "???"},
      {"\xE4\xBD(", "?("},
      {"\xE4\xBD", "?"},
      {"\xED\xA0\x80", "???"},
      {"\xF0\x9F\x98", "?"},
      {"\xF0\x9F\x98z", "?z"},
      {"\xF0\x80\x80\x80", "????"},
      {"\xF0\x9F\xF0\x9F\xA4\x94", "?\xF0\x9F\xA4\x94"},
      {"\xF4\x90\x80\x80", "????"},
      {"\xF5\x80", "??"},
      {"\xFF\xFE", "??"},
  };
  for (const auto& [bytes, marked] : cases) {
    std::string expected;
    for (char c : marked) c == '?' ? expected += kReplacementCharacter : expected += c;
    EXPECT_EQ(ToValidUtf8(bytes), expected) << ::testing::PrintToString(bytes);
  }
}

TEST(Utf8, ReplacesAsTheOracleDoes) {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const std::string bytes = RandomBytes(random, 12);
    ASSERT_EQ(ToValidUtf8(bytes), OracleReplace(bytes)) << ::testing::PrintToString(bytes);
    ASSERT_EQ(IsValidUtf8(bytes), OracleReplace(bytes) == bytes) << ::testing::PrintToString(bytes);
    ASSERT_TRUE(IsValidUtf8(ToValidUtf8(bytes)));
  }
}

TEST(Utf8, ReportsTheLengthOfAnIncompleteEnd) {
  std::string text;
  EXPECT_EQ(AppendValidUtf8("ab\xF0\x9F\xA4", &text), 3u);
  EXPECT_EQ(AppendValidUtf8("\xC3", &text), 1u);
  EXPECT_EQ(AppendValidUtf8("c", &text), 0u);
  EXPECT_EQ(text, "abc");
}

TEST(Utf8, AsciiIsFoundAtEveryPlace) {
  for (size_t length = 0; length < 20; ++length) {
    EXPECT_TRUE(IsAscii(std::string(length, '\x7F')));
    for (size_t at = 0; at < length; ++at) {
      std::string bytes(length, 'a');
      bytes[at] = '\x80';
      EXPECT_FALSE(IsAscii(bytes));
    }
  }
}

TEST(Utf8, CodePointsSurviveTheRoundTrip) {
  std::string text;
  std::u32string code_points;
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    AppendCodePoint(c, &text);
    code_points.push_back(c);
  }
  EXPECT_TRUE(IsValidUtf8(text));
  EXPECT_TRUE(DecodeUtf8(text) == code_points);
  EXPECT_EQ(DecodeUtf8("a\xC3"), std::nullopt);
  EXPECT_EQ(DecodeUtf8("\xED\xA0\x80"), std::nullopt);
  EXPECT_THROW(AppendCodePoint(0xD800, &text), InternalError);
  EXPECT_THROW(AppendCodePoint(0x110000, &text), InternalError);
}

}  // namespace
}  // namespace mlc_native
