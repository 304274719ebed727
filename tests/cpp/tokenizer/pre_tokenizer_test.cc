#include "tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mlc_native {
namespace {

using PieceTexts = std::vector<std::string>;
using namespace pre_tokenizer_step;

constexpr char kLlama3Words[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

PreTokenizer::Step By(std::string_view pattern, SplitBehavior behavior = SplitBehavior::kIsolated,
                      bool invert = false) {
  return Split{std::make_shared<const TextRegex>(pattern), behavior, invert};
}

PieceTexts PieceTextsOf(std::string_view text, const std::vector<PreTokenizer::Step>& steps,
                        bool continues = false) {
  PreTokenizer pre_tokenizer;
  for (const PreTokenizer::Step& step : steps) pre_tokenizer.Add(step);
  TextPool pool;
  std::vector<TextPiece> pieces;
  if (!text.empty()) pieces.push_back({.text = text, .at_start = true});
  pre_tokenizer.Apply(continues, &pool, &pieces);
  PieceTexts texts;
  for (const TextPiece& piece : pieces) texts.emplace_back(piece.text);
  return texts;
}

TEST(PreTokenizer, WithoutStepsATextIsOneWord) {
  EXPECT_EQ(PieceTextsOf("a b 1", {}), (PieceTexts{"a b 1"}));
  EXPECT_EQ(PieceTextsOf("", {By(kGpt2Words)}), PieceTexts());
}

TEST(PreTokenizer, Gpt2) {
  EXPECT_EQ(PieceTextsOf("I'll do x1 'S", {By(kGpt2Words)}),
            (PieceTexts{"I", "'ll", " do", " x", "1", " '", "S"}));
  EXPECT_EQ(PieceTextsOf("a  b \n", {By(kGpt2Words)}), (PieceTexts{"a", " ", " b", " \n"}));
  EXPECT_EQ(PieceTextsOf("{\"a\": 12}", {By(kGpt2Words)}),
            (PieceTexts{"{\"", "a", "\":", " 12", "}"}));
}

TEST(PreTokenizer, Llama3) {
  EXPECT_EQ(PieceTextsOf("it'S \"name\":\n\n  12345", {By(kLlama3Words)}),
            (PieceTexts{"it", "'S", " \"", "name", "\":\n\n", " ", " ", "123", "45"}));
  EXPECT_EQ(PieceTextsOf("a'\u017F", {By(kLlama3Words)}), (PieceTexts{"a", "'\u017F"}))
      << "the long s is an s without case";
}

TEST(PreTokenizer, StepsAreAppliedToTheWordsOfTheOneBefore) {
  EXPECT_EQ(PieceTextsOf("a 12b", {SplitChars{&unicode::Numerics()}, By(kGpt2Words)}),
            (PieceTexts{"a", " ", "1", "2", "b"}));
}

TEST(PreTokenizer, Behaviors) {
  using enum SplitBehavior;
  const std::string text = "the-final--countdown-";
  EXPECT_EQ(PieceTextsOf(text, {By("-", kRemoved)}), (PieceTexts{"the", "final", "countdown"}));
  EXPECT_EQ(PieceTextsOf(text, {By("-")}),
            (PieceTexts{"the", "-", "final", "-", "-", "countdown", "-"}));
  EXPECT_EQ(PieceTextsOf(text, {By("-", kMergedWithPrevious)}),
            (PieceTexts{"the-", "final-", "-", "countdown-"}));
  EXPECT_EQ(PieceTextsOf(text, {By("-", kMergedWithNext)}),
            (PieceTexts{"the", "-final", "-", "-countdown", "-"}));
  EXPECT_EQ(PieceTextsOf(text, {By("-", kContiguous)}),
            (PieceTexts{"the", "-", "final", "--", "countdown", "-"}));
  EXPECT_EQ(PieceTextsOf(text, {By("[a-z]+", kRemoved, /*invert=*/true)}),
            (PieceTexts{"the", "final", "countdown"}));
}

TEST(PreTokenizer, Metaspace) {
  using Prepend = Metaspace::Prepend;
  EXPECT_EQ(PieceTextsOf("a b  c", {Metaspace{"_", Prepend::kAlways, true}}),
            (PieceTexts{"_a", "_b", "_", "_c"}));
  EXPECT_EQ(PieceTextsOf("a b", {Metaspace{"_", Prepend::kNever, false}}), (PieceTexts{"a_b"}));
  EXPECT_EQ(PieceTextsOf("a,b", {By(","), Metaspace{"_", Prepend::kFirst, true}}),
            (PieceTexts{"_a", ",", "b"}));
}

TEST(PreTokenizer, NothingIsPutInFrontOfWhatContinues) {
  const Metaspace metaspace{"_", Metaspace::Prepend::kAlways, true};
  EXPECT_EQ(PieceTextsOf("a b", {metaspace}, /*continues=*/true), (PieceTexts{"a", "_b"}));
  EXPECT_EQ(PieceTextsOf("a", {PrefixSpace{}}, /*continues=*/true), (PieceTexts{"a"}));
  EXPECT_EQ(PieceTextsOf("a", {PrefixSpace{}}), (PieceTexts{" a"}));
}

TEST(PreTokenizer, WhitespaceKeepsWordsAndRunsOfOthers) {
  EXPECT_EQ(PieceTextsOf("  Hi_1, (you) \n", {Words{}}),
            (PieceTexts{"Hi_1", ",", "(", "you", ")"}));
}

TEST(PreTokenizer, KnowsLettersNumbersAndSpacesBeyondAscii) {
  EXPECT_EQ(PieceTextsOf("é日٣½ \u00A0—", {By(kGpt2Words)}),
            (PieceTexts{"é日", "٣½", " ", "\u00A0", "—"}));
}

TEST(PreTokenizer, BytesThatAreNoUtf8AreLetters) {
  EXPECT_EQ(PieceTextsOf("\x80\xE2\x82 a\xFF", {By(kGpt2Words)}),
            (PieceTexts{"\x80\xE2\x82", " a\xFF"}));
}

}  // namespace
}  // namespace mlc_native
