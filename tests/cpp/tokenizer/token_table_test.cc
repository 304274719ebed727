#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mlc_native/tokenizer.h"
#include "support/check.h"
#include "support/error.h"
#include "testing/temp_folder.h"
#include "tokenizer/token_decoder.h"

namespace mlc_native {
namespace {

class TokenTableTest : public ::testing::Test {
 protected:
  std::string path() const { return directory_.file("tokenizer.json"); }

  std::shared_ptr<const TokenTable> Load(const std::string& json) {
    directory_.Write("tokenizer.json", json);
    return TokenTable::FromTokenizerJson(path());
  }

  // The message of the LoadError that the file causes.
  std::string LoadFailure(const std::string& json) {
    try {
      Load(json);
    } catch (const LoadError& e) {
      EXPECT_EQ(e.field(), "tokenizer.json");
      EXPECT_NE(std::string(e.what()).find(path()), std::string::npos) << e.what();
      return e.what();
    }
    ADD_FAILURE() << "loaded: " << json;
    return "";
  }

  const testing::TempFolder directory_;
};

std::vector<std::string> AllBytes(const TokenTable& table) {
  std::vector<std::string> all;
  for (int32_t id = 0; id < table.size(); ++id) all.emplace_back(table.bytes(id));
  return all;
}

using Tokens = std::vector<std::string>;

TEST_F(TokenTableTest, ByteLevelBpe) {
  // "Ġ" is a space, "Ċ" a newline, "ĩ" the byte 0x87, "ð" the byte 0xF0.
  const auto table = Load(R"({
    "added_tokens": [
      {"id": 6, "content": "<|im_end|>", "special": true},
      {"id": 7, "content": "<tool_call>", "special": false},
      {"id": 8, "content": "é ü", "special": false}],
    "decoder": {"type": "ByteLevel", "add_prefix_space": true},
    "model": {"type": "BPE", "merges": [["Ġ", "a"]],
      "vocab": {"Hi": 0, "Ġa": 1, "Ċ": 2, "ð": 3, "ĩ": 4, "\u4f60": 5}}})");
  EXPECT_EQ(AllBytes(*table), (Tokens{"Hi", " a", "\n", "\xF0", "\x87", "\xE4\xBD\xA0",
                                      "<|im_end|>", "<tool_call>", "\xC3\xA9 \xC3\xBC"}));
  EXPECT_TRUE(table->is_special(6));
  EXPECT_FALSE(table->is_special(7));
  EXPECT_EQ(table->text_bytes(6), "");
  EXPECT_EQ(table->text_bytes(7), "<tool_call>");
  EXPECT_FALSE(table->strip_leading_space());
}

TEST_F(TokenTableTest, VisibleSpecialTokensAddTheirText) {
  directory_.Write("tokenizer.json", R"({
    "added_tokens": [
      {"id": 1, "content": "<|im_end|>", "special": true},
      {"id": 2, "content": "[TOOL_CALLS]", "special": true}],
    "model": {"type": "WordLevel", "vocab": {"a": 0}}})");
  const auto table = TokenTable::FromTokenizerJson(path(), {"[TOOL_CALLS]", "[not there]"});
  EXPECT_EQ(table->text_bytes(1), "");
  EXPECT_EQ(table->text_bytes(2), "[TOOL_CALLS]");
  EXPECT_FALSE(table->is_special(2));
}

TEST_F(TokenTableTest, ByteFallbackBpeOfLlama2) {
  const auto table = Load(R"({
    "added_tokens": [{"id": 0, "content": "<unk>", "special": true}],
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "byte_fallback": true, "merges": [],
      "vocab": {"<unk>": 0, "<0x0A>": 1, "<0xf0>": 2, "▁▁a▁": 3, "<0xZZ>": 4, "<0x0A>b": 5,
                "<0x >": 6}}})");
  EXPECT_EQ(AllBytes(*table),
            (Tokens{"<unk>", "\n", "\xF0", "  a ", "<0xZZ>", "<0x0A>b", "<0x >"}));
  EXPECT_TRUE(table->strip_leading_space());
}

TEST_F(TokenTableTest, ByteFallbackBpeOfGemmaKeepsTheFirstSpace) {
  const auto table = Load(R"({
    "added_tokens": [{"id": 1, "content": "▁▁", "special": false}],
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"}]},
    "model": {"type": "BPE", "vocab": {"▁a": 0}, "merges": []}})");
  EXPECT_EQ(AllBytes(*table), (Tokens{" a", "  "}));
  EXPECT_FALSE(table->strip_leading_space());
}

TEST_F(TokenTableTest, MetaspaceUnigram) {
  const std::string model = R"("model": {"type": "Unigram", "unk_id": 0,
      "vocab": [["<unk>", 0.0], ["▁Hello", -1.5], ["lo", -2]]})";
  const auto table = Load("{" + model +
                          R"(, "decoder": {"type": "Metaspace", "replacement": "▁",
                            "prepend_scheme": "always"}})");
  EXPECT_EQ(AllBytes(*table), (Tokens{"<unk>", " Hello", "lo"}));
  EXPECT_TRUE(table->strip_leading_space());

  const auto strips = [&](const std::string& scheme) {
    return Load("{" + model + R"(, "decoder": {"type": "Metaspace", )" + scheme + "}}")
        ->strip_leading_space();
  };
  EXPECT_TRUE(strips(R"("prepend_scheme": "first")"));
  EXPECT_FALSE(strips(R"("prepend_scheme": "never")"));
  EXPECT_TRUE(strips(R"("add_prefix_space": true)"));
  EXPECT_FALSE(strips(R"("add_prefix_space": false)"));
}

TEST_F(TokenTableTest, WordPiece) {
  const auto table = Load(R"({
    "added_tokens": [{"id": 0, "content": "[CLS]", "special": true}],
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
    "model": {"type": "WordPiece", "continuing_subword_prefix": "##",
      "vocab": {"[CLS]": 0, "play": 1, "##ing": 2, ".": 3, "n't": 4}}})");
  EXPECT_EQ(AllBytes(*table), (Tokens{"[CLS]", " play", "ing", ".", "n't"}));
  EXPECT_TRUE(table->strip_leading_space());
}

TEST_F(TokenTableTest, WordsWithoutDecoderAreJoinedBySpaces) {
  const auto table = Load(R"({"decoder": null, "model": {"type": "WordLevel",
                              "vocab": {"hello": 0, "world": 1}}})");
  EXPECT_EQ(AllBytes(*table), (Tokens{" hello", " world"}));
  EXPECT_TRUE(table->strip_leading_space());
}

TEST_F(TokenTableTest, ModelWithoutTypeIsToldByItsVocabulary) {
  const std::string decoder = R"("decoder": {"type": "Fuse"})";
  EXPECT_EQ(AllBytes(*Load("{" + decoder + R"(, "model": {"vocab": {"a": 0}, "merges": []}})")),
            (Tokens{"a"}));
  EXPECT_EQ(AllBytes(*Load("{" + decoder + R"(, "model": {"vocab": [["b", -1]]}})")),
            (Tokens{"b"}));
}

TEST_F(TokenTableTest, StripBeforeFuseWorksOnEveryToken) {
  const auto table = Load(R"({
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Strip", "content": "_", "start": 2, "stop": 1}, {"type": "Fuse"}]},
    "model": {"type": "BPE", "vocab": {"___a__": 0, "_": 1}, "merges": []}})");
  EXPECT_EQ(AllBytes(*table), (Tokens{"_a_", ""}));
  EXPECT_FALSE(table->strip_leading_space());
}

TEST_F(TokenTableTest, HolesAndAddedTokensThatReplace) {
  const auto table = Load(R"({
    "added_tokens": [{"id": 2, "content": "new", "special": false},
                     {"id": 9, "content": "<eos>", "special": true}],
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "old": 2, "b": 4}, "merges": []}})");
  EXPECT_EQ(table->size(), 10);
  EXPECT_EQ(AllBytes(*table), (Tokens{"a", "", "new", "", "b", "", "", "", "", "<eos>"}));
  EXPECT_FALSE(table->is_special(3));
}

TEST_F(TokenTableTest, IdsOutsideTheTableAreEmpty) {
  const TokenTable table({"a", "b"}, {false, true}, false);
  for (int32_t id : {-1, 2, 1 << 30}) {
    EXPECT_EQ(table.bytes(id), "");
    EXPECT_EQ(table.text_bytes(id), "");
    EXPECT_FALSE(table.is_special(id));
  }
  EXPECT_EQ(table.bytes(1), "b");
  EXPECT_EQ(table.text_bytes(1), "");
  EXPECT_FALSE(TokenTable({"a"}, {}, true).is_special(0));
  EXPECT_THROW(TokenTable({"a"}, {true, false}, true), InternalError);
}

TEST_F(TokenTableTest, EveryByteHasACharacter) {
  const ByteLevelAlphabet alphabet;
  std::vector<int> times(256);
  for (char32_t c = 0; c < 0x1000; ++c) {
    if (alphabet.ByteOf(c) >= 0) ++times[alphabet.ByteOf(c)];
  }
  EXPECT_EQ(times, std::vector<int>(256, 1));
  EXPECT_EQ(alphabet.ByteOf(U'A'), 'A');
  EXPECT_EQ(alphabet.ByteOf(U'\u0120'), ' ');
  EXPECT_EQ(alphabet.ByteOf(U'\u010A'), '\n');
  EXPECT_EQ(alphabet.ByteOf(U'\u0143'), 0xAD);
  EXPECT_EQ(alphabet.ByteOf(U' '), -1);
}

TEST_F(TokenTableTest, RefusesFilesThatAreMissingOrDamaged) {
  EXPECT_THROW(TokenTable::FromTokenizerJson(path()), LoadError);
  EXPECT_THROW(TokenTable::FromTokenizerJson(directory_.path()), LoadError);
  const std::string whole =
      R"({"decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {"a": 0}}})";
  ASSERT_NO_THROW(Load(whole));
  for (size_t length = 0; length < whole.size(); ++length) LoadFailure(whole.substr(0, length));
  LoadFailure("[]");
  LoadFailure("{}");
  LoadFailure(R"({"model": {"type": "BPE"}})");
  LoadFailure(R"({"model": {"type": "BPE", "vocab": [["a", 0]]}})");
  LoadFailure(R"({"model": {"type": "Unigram", "vocab": {"a": 0}}})");
  LoadFailure(R"({"model": {"type": "Unigram", "vocab": [[]]}})");
  LoadFailure(R"({"model": {"type": "Unigram", "vocab": [3]}})");
  LoadFailure(R"({"model": {"type": "BPE", "vocab": {"a": "b"}}})");
  LoadFailure(R"({"model": {"type": "BPE", "vocab": {"a": 0}}, "added_tokens": [{"id": 1}]})");
  LoadFailure("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"\xC3\": 0}}}");
}

TEST_F(TokenTableTest, RefusesIdsThatWouldAllocateWithoutBound) {
  for (const char* id : {"-1", "16777217", "9223372036854775807"}) {
    EXPECT_NE(
        LoadFailure(std::string(R"({"model": {"type": "BPE", "vocab": {"tok": )") + id + "}}}")
            .find("\"tok\""),
        std::string::npos);
  }
}

TEST_F(TokenTableTest, NamesWhatIsNotSupported) {
  const auto failure_of_decoder = [&](const std::string& decoder) {
    return LoadFailure(R"({"model": {"type": "BPE", "vocab": {"a": 0}}, "decoder": )" + decoder +
                       "}");
  };
  EXPECT_NE(LoadFailure(R"({"model": {"type": "Tiktoken", "vocab": {"a": 0}}})").find("Tiktoken"),
            std::string::npos);
  EXPECT_NE(failure_of_decoder(R"({"type": "CTC"})").find("CTC"), std::string::npos);
  EXPECT_NE(failure_of_decoder(R"({"type": "BPEDecoder", "suffix": "</w>"})").find("BPEDecoder"),
            std::string::npos);
  EXPECT_NE(failure_of_decoder(R"({"type": "Replace", "pattern": {"Regex": " +"}, "content": ""})")
                .find("Replace"),
            std::string::npos);
  EXPECT_NE(failure_of_decoder(R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 0, "stop": 1}]})")
                .find("Strip"),
            std::string::npos);
  EXPECT_NE(failure_of_decoder(R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
                {"type": "ByteLevel"}]})")
                .find("ByteLevel"),
            std::string::npos);
}

// A file of 2 KB would otherwise make terabytes, or take minutes.
TEST_F(TokenTableTest, WhatExpandsIsLimited) {
  const auto with = [](const std::string& steps, const std::string& vocab) {
    return R"({"decoder": {"type": "Sequence", "decoders": [)" + steps +
           R"(]}, "model": {"type": "BPE", "merges": [], "vocab": {)" + vocab + "}}}";
  };
  const auto times = [](int count, const std::string& text) {
    std::string all = text;
    for (int i = 1; i < count; ++i) all += "," + text;
    return all;
  };
  const std::string doubles = R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  EXPECT_EQ(Load(with(times(16, doubles), R"("a": 0)"))->bytes(0).size(), kMaxTokenBytes);
  EXPECT_NE(LoadFailure(with(times(17, doubles), R"("a": 0)")).find("more than 65536 bytes"),
            std::string::npos);
  EXPECT_NE(LoadFailure(with(times(33, doubles), R"("b": 0)")).find("33 steps, allowed are 32"),
            std::string::npos);

  const std::string longest(kMaxTokenBytes, 'a');
  const std::string strips =
      R"({"type": "Strip", "content": "a", "start": 60000, "stop": 9000000})";
  EXPECT_EQ(Load(with(strips, '"' + longest + "\": 0"))->bytes(0), "");
  EXPECT_NE(LoadFailure(with(strips, '"' + longest + "a\": 0")).find("more than 65536 bytes"),
            std::string::npos);
  EXPECT_NE(LoadFailure(with("", R"("a": 4194305)")).find("must be in [0, 4194304]"),
            std::string::npos);

  // A search for a long pattern that almost matches everywhere.
  const std::string pattern = std::string(30000, 'a') + 'b';
  const std::string slow =
      R"({"type": "Replace", "pattern": {"String": ")" + pattern + R"("}, "content": ""})";
  EXPECT_NE(LoadFailure(with(times(2, slow), '"' + longest + "\": 0")).find("takes too long"),
            std::string::npos);
}

}  // namespace
}  // namespace mlc_native
