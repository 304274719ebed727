// Equality with the tokenizers package is tested in tests/python/test_tokenizer_pipeline.py.
#include "mlc_native/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/error.h"
#include "testing/temp_folder.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/normal_forms.h"
#include "tokenizer/normalizer.h"

namespace mlc_native {
namespace {

using TokenIdList = std::vector<int32_t>;

class TokenizerTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Tokenizer> Load(const std::string& json) {
    folder_.Write("tokenizer.json", json);
    return Tokenizer::FromTokenizerJson(folder_.file("tokenizer.json"), &reason_);
  }

  testing::TempFolder folder_;
  std::string reason_;
};

constexpr char kUnigram[] = R"({
  "added_tokens": [{"id": 0, "content": "<unk>", "special": true},
                   {"id": 6, "content": "<|user|>", "special": false}],
  "normalizer": {"type": "Lowercase"},
  "pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"},
  "decoder": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"},
  "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 8], "cls": ["<s>", 7]},
  "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["_", -2], ["a", -1],
            ["b", -1], ["_a", -1.5], ["ab", -2.5]]}})";

TEST_F(TokenizerTest, TakesTheMostLikelySpelling) {
  const auto tokenizer = Load(kUnigram);
  ASSERT_NE(tokenizer, nullptr) << reason_;
  EXPECT_EQ(tokenizer->Encode("A"), (TokenIdList{4}));
  EXPECT_EQ(tokenizer->Encode("ab b"), (TokenIdList{4, 3, 1, 3}));
  EXPECT_EQ(tokenizer->Encode("axyzb"), (TokenIdList{4, 0, 3})) << "unknown neighbours are one";
  EXPECT_EQ(tokenizer->Encode(""), TokenIdList());
}

TEST_F(TokenizerTest, ControlTokensOfTheTemplateAlone) {
  const auto tokenizer = Load(kUnigram);
  ASSERT_NE(tokenizer, nullptr) << reason_;
  const std::string text = "<|user|>a<|user|>";
  EXPECT_EQ(tokenizer->Encode(text), (TokenIdList{6, 4, 6}));
  const std::vector<TextSpan> own = {{0, 8}};
  const TokenIdList ids = tokenizer->Encode(text, own);
  EXPECT_EQ(ids.front(), 6);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 6), 1);
}

TEST_F(TokenizerTest, SpecialTokensAreNotRepeated) {
  const auto tokenizer = Load(kUnigram);
  ASSERT_NE(tokenizer, nullptr) << reason_;
  TokenIdList ids = {4};
  tokenizer->special_tokens().PutAround(&ids);
  EXPECT_EQ(ids, (TokenIdList{7, 4, 8}));
  tokenizer->special_tokens().PutAround(&ids);
  EXPECT_EQ(ids, (TokenIdList{7, 4, 8}));
}

TEST_F(TokenizerTest, VocabularyAndDecoding) {
  const auto tokenizer = Load(kUnigram);
  ASSERT_NE(tokenizer, nullptr) << reason_;
  EXPECT_EQ(tokenizer->vocab_size(), 7);
  EXPECT_EQ(tokenizer->IdOf("_a"), 4);
  EXPECT_EQ(tokenizer->IdOf("<|user|>"), 6);
  EXPECT_EQ(tokenizer->IdOf("none"), std::nullopt);
  EXPECT_EQ(tokenizer->TokenOf(6), "<|user|>");
  EXPECT_EQ(tokenizer->TokenOf(7), std::nullopt);
  EXPECT_EQ(tokenizer->Decode(TokenIdList{4, 3, 0, 4}, /*skip_special_tokens=*/true), "ab a");
  EXPECT_EQ(tokenizer->Decode(TokenIdList{4, 0}, /*skip_special_tokens=*/false), "a<unk>");
}

TEST_F(TokenizerTest, TextsThatAreNoUtf8AreRefused) {
  const auto tokenizer = Load(kUnigram);
  ASSERT_NE(tokenizer, nullptr) << reason_;
  EXPECT_THROW(tokenizer->Encode("a\xFF"), InvalidRequest);
}

TEST_F(TokenizerTest, SaysHowManyBytesATokenMayStandFor) {
  const auto of_normalizer = [this](const std::string& normalizer) {
    return Load(R"({"normalizer": )" + normalizer + R"(, "pre_tokenizer": {"type": "ByteLevel"},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {"a": 0, "aa": 1}, "merges": ["a a"]}})")
        ->most_text_bytes();
  };
  EXPECT_EQ(of_normalizer("null"), 2);
  EXPECT_EQ(of_normalizer(R"({"type": "NFC"})"), 8);
  EXPECT_EQ(of_normalizer(R"({"type": "Strip"})"), 0) << "any number of spaces";
  EXPECT_EQ(Load(kUnigram)->most_text_bytes(), 0) << "a run of unknown characters is one token";
}

TEST_F(TokenizerTest, OtherPartsAreNamed) {
  EXPECT_EQ(Load(R"({"model": {"type": "WordLevel", "vocab": {}}})"), nullptr);
  EXPECT_EQ(reason_, "model type \"WordLevel\"");
}

TEST(NormalForms, DecomposeOrderAndCompose) {
  EXPECT_EQ(Normalized("e\u0301\u0323", NormalForm::kNfd), "e\u0323\u0301");
  EXPECT_EQ(Normalized("e\u0301\u0323", NormalForm::kNfc), "\u1EB9\u0301");
  EXPECT_EQ(Normalized("\uAC01", NormalForm::kNfd), "\u1100\u1161\u11A8");
  EXPECT_EQ(Normalized("\u1100\u1161\u11A8", NormalForm::kNfc), "\uAC01");
  EXPECT_EQ(Normalized("\uFB01\u00BD", NormalForm::kNfkc), "fi1\u20442");
  EXPECT_EQ(Normalized("\u0344", NormalForm::kNfc), "\u0308\u0301") << "is not composed again";
}

TEST(ByteTrie, FindsTheLongestText) {
  const ByteTrie trie({{"a", 1}, {"abc", 2}, {"b", 3}, {"a", 4}, {"", 5}});
  EXPECT_EQ(trie.Longest("abd").value, 4);
  EXPECT_EQ(trie.Longest("abcd").length, 3);
  EXPECT_EQ(trie.Longest("c").value, ByteTrie::kNone);
  EXPECT_EQ(ByteTrie().Longest("a").value, ByteTrie::kNone);
}

}  // namespace
}  // namespace mlc_native
