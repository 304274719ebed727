#include "tokenizer/text_streamer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "support/utf8.h"

namespace mlc_native {
namespace {

std::string Stream(const std::vector<std::string>& pieces) {
  TextStreamer streamer;
  std::string text;
  for (const std::string& piece : pieces) {
    streamer.Put(piece, &text);
    EXPECT_TRUE(IsValidUtf8(text)) << testing::PrintToString(text);
  }
  streamer.Finish(&text);
  return text;
}

// Cuts at random places; some pieces are empty.
std::vector<std::string> Cut(const std::string& bytes, std::mt19937& random) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < bytes.size();) {
    const size_t length = random() % 4;
    pieces.push_back(bytes.substr(at, length));
    at += length;
  }
  return pieces;
}

constexpr char kParagraph[] =
    "I feel so stressed and overwhelmed \xF0\x9F\x98\xA9. Sometimes I feel like I can't breathe "
    "\xF0\x9F\x98\xAD\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7 "
    "caf\xC3\xA9 \xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x8C done.";

TEST(TextStreamer, OneByteAtATimeIsTheWholeText) {
  std::vector<std::string> pieces;
  for (char c : std::string(kParagraph)) pieces.emplace_back(1, c);
  EXPECT_EQ(Stream(pieces), kParagraph);
}

TEST(TextStreamer, HoldsACharacterBackUntilItIsComplete) {
  TextStreamer streamer;
  std::string text;
  streamer.Put("a\xF0\x9F", &text);
  EXPECT_EQ(text, "a");
  streamer.Put("\xA4", &text);
  EXPECT_EQ(text, "a");
  streamer.Put("\x94z", &text);
  EXPECT_EQ(text, "a\xF0\x9F\xA4\x94z");
}

TEST(TextStreamer, StripsOneSpaceAtTheStartOfATextWhereItIsToldTo) {
  const auto stream = [](TextStreamer& streamer, const std::vector<std::string>& pieces) {
    std::string text;
    for (const std::string& piece : pieces) streamer.Put(piece, &text);
    streamer.Finish(&text);
    return text;
  };
  TextStreamer strips(/*strip_leading_space=*/true);
  EXPECT_EQ(stream(strips, {"", " ", " a", " b"}), " a b");
  EXPECT_EQ(stream(strips, {" a"}), "a") << "it is as new";
  EXPECT_EQ(stream(strips, {"a", " b"}), "a b");
  EXPECT_EQ(stream(strips, {" \xF0\x9F", "\xA4\x94"}), "\xF0\x9F\xA4\x94");
  EXPECT_EQ(stream(strips, {" "}), "");
  TextStreamer keeps;
  EXPECT_EQ(stream(keeps, {" a"}), " a");
}

TEST(TextStreamer, AHeldPrefixThatIsNoCharacterBecomesOneReplacement) {
  EXPECT_EQ(Stream({"\xF0\x9F", "z"}), std::string(kReplacementCharacter) + "z");
  EXPECT_EQ(Stream({"\xF0\x9F"}), kReplacementCharacter);
  EXPECT_EQ(Stream({"\xE4", "\xE4\xBD\xA0"}), std::string(kReplacementCharacter) + "\xE4\xBD\xA0");
}

TEST(TextStreamer, IsAsNewAfterFinish) {
  TextStreamer streamer;
  std::string text;
  streamer.Put("\xE4\xBD", &text);
  streamer.Finish(&text);
  streamer.Finish(&text);
  EXPECT_EQ(text, kReplacementCharacter);
  text.clear();
  streamer.Put("\xA0 b", &text);
  EXPECT_EQ(text, std::string(kReplacementCharacter) + " b");
}

// mlc_llm's test_text_streamer_emojis: tokens of emojis whose bytes come in pieces.
TEST(TextStreamer, PartialEmojis) {
  const std::string thinking = "\xF0\x9F\xA4\x94";
  const std::string r(kReplacementCharacter);
  EXPECT_EQ(Stream({"\xF0", "\x9F", "\xA4", "\x94"}), thinking);
  EXPECT_EQ(Stream({thinking, "\xF0\x9F\xA4", "\x94"}), thinking + thinking);
  EXPECT_EQ(Stream({"\xF0\x9F\xA4\x94\xF0\x9F", "\xA4\x94"}), thinking + thinking);
  EXPECT_EQ(Stream({"\xF0\x9F\xA4", "\xF0\x9F\xA4\x94"}), r + thinking);
  EXPECT_EQ(Stream({"\xF0\x9F", "\xF0\x9F", thinking, "\xA4"}), r + r + thinking + r);
}

TEST(TextStreamer, AnyCutOfAnyBytesIsTheWholeDecoded) {
  std::mt19937 random(2);
  static constexpr uint8_t kBytes[] = {'a',  0x80, 0x94, 0x9F, 0xA4, 0xBF, 0xC3,
                                       0xE0, 0xE4, 0xED, 0xF0, 0xF4, 0xFF};
  for (int i = 0; i < 50000; ++i) {
    std::string bytes(random() % 24, '\0');
    for (char& byte : bytes) byte = static_cast<char>(kBytes[random() % sizeof(kBytes)]);
    std::string whole;
    if (AppendValidUtf8(bytes, &whole) > 0) whole += kReplacementCharacter;
    ASSERT_EQ(Stream(Cut(bytes, random)), whole) << testing::PrintToString(bytes);
  }
}

TEST(TextStreamer, AnyCutOfTextIsTheText) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(Stream(Cut(kParagraph, random)), kParagraph);
}

}  // namespace
}  // namespace mlc_native
