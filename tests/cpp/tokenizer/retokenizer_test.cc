#include "tokenizer/retokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace mlc_native {
namespace {

constexpr int32_t kA = 0, kB = 1, kC = 2, kAb = 3, kAbc = 4, kQuote = 5, kQuoteA = 6, kEnd = 7;

class RetokenizerTest : public ::testing::Test {
 protected:
  RetokenizerTest() : table_(Table()), retokenizer_(table_, Encoder()) {}
  ~RetokenizerTest() override { std::filesystem::remove(Path()); }

  void ExpectExtension(const std::vector<int32_t>& last, std::string_view text, size_t num_kept,
                       const std::vector<int32_t>& added) const {
    const auto extension = retokenizer_.Extend(last, text);
    ASSERT_TRUE(extension.has_value());
    EXPECT_EQ(extension->num_kept, num_kept);
    EXPECT_EQ(extension->added, added);
  }

  static std::string Path() { return ::testing::TempDir() + "retokenizer_test_tokenizer.json"; }
  static std::shared_ptr<const TokenTable> Table() {
    std::ofstream(Path()) << R"({
      "added_tokens": [{"id": 7, "content": "<end>", "special": true}],
      "pre_tokenizer": {"type": "ByteLevel", "use_regex": true}, "decoder": {"type": "ByteLevel"},
      "model": {"type": "BPE",
                "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "\"": 5, "\"a": 6},
                "merges": ["a b", "ab c"]}})";
    return TokenTable::FromTokenizerJson(Path());
  }
  std::shared_ptr<const TextEncoder> Encoder() {
    return TextEncoder::FromTokenizerJson(Path(), *table_, &reason_);
  }

  std::string reason_;
  const std::shared_ptr<const TokenTable> table_;
  const Retokenizer retokenizer_;
};

TEST_F(RetokenizerTest, LastTokensJoinWithWhatFollows) {
  ExpectExtension({kQuote, kC, kAb}, "ca", 2, {kAbc, kA});
  ExpectExtension({kA, kB}, "c", 0, {kAbc});
}

TEST_F(RetokenizerTest, TokensThatStayAsTheyAreAreKept) {
  ExpectExtension({kQuote, kC}, "\"", 2, {kQuote});
  ExpectExtension({}, "abcab", 0, {kAbc, kAb});
}

TEST_F(RetokenizerTest, TokensWithoutTextStayWhereTheyAre) {
  ExpectExtension({kA, kEnd, kA}, "b", 2, {kAb});
  ExpectExtension({kA, kEnd}, "b", 2, {kB});
}

TEST_F(RetokenizerTest, WhatHasNoTokenIsLeft) {
  EXPECT_FALSE(retokenizer_.Extend(std::vector<int32_t>{kA}, "x").has_value());
}

TEST_F(RetokenizerTest, AllowedTokensMayBeLonger) {
  EXPECT_TRUE(retokenizer_.MayBeLonger(kQuote, {}));
  EXPECT_FALSE(retokenizer_.MayBeLonger(kAbc, {}));
  const std::vector<int32_t> only_ab = {1 << kAb};
  EXPECT_TRUE(retokenizer_.MayBeLonger(kA, only_ab));
  EXPECT_FALSE(retokenizer_.MayBeLonger(kAb, only_ab)) << "abc is not allowed";
}

}  // namespace
}  // namespace mlc_native
