#include "tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mlc_native {
namespace {

using Words = std::vector<std::string_view>;

Words Split(std::string_view text, const std::vector<WordRule>& rules) {
  PreTokenizer pre_tokenizer;
  for (WordRule rule : rules) pre_tokenizer.Add(rule);
  Words words;
  pre_tokenizer.Split(text, &words);
  return words;
}

TEST(PreTokenizer, WithoutRulesATextIsOneWord) {
  EXPECT_EQ(Split("a b 1", {}), (Words{"a b 1"}));
  EXPECT_EQ(Split("", {word_rule::Gpt2}), Words());
}

TEST(PreTokenizer, Gpt2) {
  EXPECT_EQ(Split("I'll do x1 'S", {word_rule::Gpt2}),
            (Words{"I", "'ll", " do", " x", "1", " '", "S"}));
  EXPECT_EQ(Split("a  b \n", {word_rule::Gpt2}), (Words{"a", " ", " b", " \n"}));
  EXPECT_EQ(Split("{\"a\": 12}", {word_rule::Gpt2}), (Words{"{\"", "a", "\":", " 12", "}"}));
}

TEST(PreTokenizer, Llama3AndQwen2) {
  EXPECT_EQ(Split("it'S \"name\":\n\n  12345", {word_rule::Llama3}),
            (Words{"it", "'S", " \"", "name", "\":\n\n", " ", " ", "123", "45"}));
  EXPECT_EQ(Split(" 12", {word_rule::Qwen2}), (Words{" ", "1", "2"}));
  EXPECT_EQ(Split("a \r\n \t b", {word_rule::Qwen2}), (Words{"a", " \r\n", " \t", " b"}));
}

TEST(PreTokenizer, RulesAreAppliedToThePiecesOfTheOneBefore) {
  EXPECT_EQ(Split("a 12b", {word_rule::SingleDigits, word_rule::Gpt2}),
            (Words{"a", " ", "1", "2", "b"}));
  EXPECT_EQ(Split("a12 3", {word_rule::RunsOfDigits}), (Words{"a", "12", " ", "3"}));
  EXPECT_EQ(Split("a b  c", {word_rule::SpaceBegins}), (Words{"a", " b", " ", " c"}));
}

TEST(PreTokenizer, KnowsLettersNumbersAndSpacesBeyondAscii) {
  EXPECT_EQ(Split("é日٣½ \u00A0—", {word_rule::Gpt2}), (Words{"é日", "٣½", " ", "\u00A0", "—"}));
}

TEST(PreTokenizer, BytesThatAreNoUtf8AreLetters) {
  EXPECT_EQ(Split("\x80\xE2\x82 a\xFF", {word_rule::Gpt2}), (Words{"\x80\xE2\x82", " a\xFF"}));
}

}  // namespace
}  // namespace mlc_native
