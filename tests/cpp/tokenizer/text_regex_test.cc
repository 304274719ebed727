// Equality with the tokenizers package is tested in tests/python/test_tokenizer_pipeline.py.
#include "tokenizer/text_regex.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mlc_native {
namespace {

using Found = std::vector<std::string>;

Found MatchesOf(std::string_view pattern, std::string_view text) {
  std::vector<TextRegex::Match> matches;
  TextRegex(pattern).FindAll(text, &matches);
  Found found;
  for (const auto& [begin, end] : matches) found.emplace_back(text.substr(begin, end - begin));
  return found;
}

TEST(TextRegex, EarlierAlternativesArePreferred) {
  EXPECT_EQ(MatchesOf("a|ab|abc", "abc"), (Found{"a"}));
  EXPECT_EQ(MatchesOf("abc|ab|a", "abab"), (Found{"ab", "ab"}));
  EXPECT_EQ(MatchesOf("(?:a|ab)(?:c|bcd)?", "abcd"), (Found{"abcd"}));
}

TEST(TextRegex, Repetitions) {
  EXPECT_EQ(MatchesOf("a{2,3}", "aaaaaa a aa"), (Found{"aaa", "aaa", "aa"}));
  EXPECT_EQ(MatchesOf("a{2}", "aaaaa"), (Found{"aa", "aa"}));
  EXPECT_EQ(MatchesOf("a+?b?", "aab"), (Found{"a", "ab"}));
  EXPECT_EQ(MatchesOf("x?a++", "xaaxa"), (Found{"xaa", "xa"}));
  EXPECT_EQ(MatchesOf("[ab]++b", "abab"), Found()) << "nothing is given back";
  EXPECT_EQ(MatchesOf("[ab]?+b", "ab"), (Found{"ab"}));
}

TEST(TextRegex, LooksAtTheNextCharacter) {
  EXPECT_EQ(MatchesOf(R"(\s+(?!\S)|\s+)", "a   b  "), (Found{"  ", " ", "  "}));
  EXPECT_EQ(MatchesOf("a(?=b)", "aab"), (Found{"a"}));
  EXPECT_EQ(MatchesOf("a$", "a\naa"), (Found{"a", "a"}));
}

TEST(TextRegex, Classes) {
  EXPECT_EQ(MatchesOf(R"([^\s\d]+)", "ab 1c"), (Found{"ab", "c"}));
  EXPECT_EQ(MatchesOf(R"([\p{L}&&[^\p{Lu}]]+)", "aBcd"), (Found{"a", "cd"}));
  EXPECT_EQ(MatchesOf(R"([a\-\]x]+)", "a-]b"), (Found{"a-]"}));
  EXPECT_EQ(MatchesOf(R"([\x{4e00}-龥]+)", "a日本"), (Found{"日本"}));
  EXPECT_EQ(MatchesOf(R"(\p{Han}+)", "日本です"), (Found{"日本"}));
  EXPECT_EQ(MatchesOf(R"(\P{L}+)", "a1-b"), (Found{"1-"}));
  EXPECT_EQ(MatchesOf(R"(\w+)", "a\u00BD-"), (Found{"a\u00BD"})) << "as Oniguruma";
  EXPECT_EQ(MatchesOf(R"([\w]+)", "a\u00BD-"), (Found{"a"}));
  EXPECT_EQ(MatchesOf(R"([^\w]+)", "a\u00BD-"), (Found{"\u00BD-"}));
}

TEST(TextRegex, WithoutCase) {
  EXPECT_EQ(MatchesOf("(?i:ab)c", "ABc aBC"), (Found{"ABc"}));
  EXPECT_EQ(MatchesOf("(?i:[sk])", "s\u017F\u212AS"), (Found{"s", "\u017F", "\u212A", "S"}));
}

TEST(TextRegex, WhatIsNotKnownIsNamed) {
  for (const char* pattern :
       {"(?<=a)b",      "(?>a)",     R"((a)\1)", R"(\bword)", "^a",           "a*",
        "a|",           "(?:a|b)++", "(?i:é)",   "(?!ab)c",   "a**",          "a{2}+",
        "[[:alpha:]]",  "[",         "(",        "a)",        R"(\p{Greek})", "[]",
        "a{3,2}",       R"(\p{L)",   "(?i)a",    R"([a-\d])", "a{1001}",      "((a{1,500}){1,500})",
        R"(\x{D800}a)", "a{x"}) {
    EXPECT_THROW(TextRegex{pattern}, UnsupportedPattern) << pattern;
  }
}

TEST(TextRegex, AnExpressionWhoseStatesAreTooManyIsRefused) {
  EXPECT_THROW(TextRegex("(?:a|b)*a(?:a|b){20}c"), UnsupportedPattern);
}

TEST(TextRegex, ATextThatTakesLongIsRefused) {
  const std::string text(100'000, 'a');
  EXPECT_THROW(MatchesOf("a+b|a", text), TextTooCostly);
  EXPECT_EQ(MatchesOf("a+", text).size(), 1);
}

TEST(TextRegex, ARunInFrontOfALookIsReadOnce) {
  EXPECT_EQ(MatchesOf(R"(\s+$)", "a   b \n  c  "), (Found{" ", "  "}));
  EXPECT_EQ(MatchesOf(R"(\s+(?=b))", " a  b   cb b"), (Found{"  ", " "}));
  EXPECT_EQ(MatchesOf("a{2,}$", "aab aaac aa"), (Found{"aa"}));
  const std::string spaces(100'000, ' ');
  EXPECT_EQ(MatchesOf(R"(\s+$)", spaces + "a" + spaces), (Found{spaces}));
  EXPECT_EQ(MatchesOf(R"(\s+$)", spaces + "a"), Found());
}

}  // namespace
}  // namespace mlc_native
