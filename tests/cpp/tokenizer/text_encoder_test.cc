// Equality with the tokenizers package is tested in tests/python/test_text_encoder.py.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "mlc_native/tokenizer.h"
#include "support/error.h"

namespace mlc_native {
namespace {

using Ids = std::optional<std::vector<int32_t>>;

class TextEncoderTest : public ::testing::Test {
 protected:
  ~TextEncoderTest() override { std::filesystem::remove(path_); }

  std::shared_ptr<const TextEncoder> Read(const std::string& json,
                                          const std::vector<std::string>& visible = {}) {
    std::ofstream(path_) << json;
    const auto table = TokenTable::FromTokenizerJson(path_, visible);
    return TextEncoder::FromTokenizerJson(path_, *table, &reason_);
  }

  static Ids Encode(const TextEncoder& encoder, const std::string& text) {
    std::vector<int32_t> ids;
    if (!encoder.Encode(text, &ids)) return std::nullopt;
    return ids;
  }

  const std::string path_ = ::testing::TempDir() + "text_encoder_test_tokenizer.json";
  std::string reason_;
};

constexpr char kByteLevel[] = R"({
  "added_tokens": [{"id": 11, "content": "<s>", "special": true},
                   {"id": 12, "content": "<t>", "special": false}],
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE",
            "vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3, "ab": 4, "bc": 5, "Ġa": 6, "<": 7, "aba": 8,
                      "s": 9, ">": 10},
            "merges": ["a b", "b c", "Ġ a", ["ab", "a"]]}})";

TEST_F(TextEncoderTest, MergesByRankThenFromTheLeft) {
  const auto encoder = Read(kByteLevel);
  ASSERT_NE(encoder, nullptr);
  EXPECT_EQ(Encode(*encoder, "abc"), (Ids{{4, 2}}));
  EXPECT_EQ(Encode(*encoder, "ababa"), (Ids{{4, 8}}));
  EXPECT_EQ(Encode(*encoder, "bca a"), (Ids{{5, 0, 6}}));
  EXPECT_EQ(Encode(*encoder, ""), Ids{std::vector<int32_t>()});
}

TEST_F(TextEncoderTest, AByteWithoutATokenCannotBeEncoded) {
  const auto encoder = Read(kByteLevel);
  EXPECT_EQ(Encode(*encoder, "abx"), std::nullopt);
}

TEST_F(TextEncoderTest, AddedTokensComeOutOfTextUnlessTheyAreSpecial) {
  const auto encoder = Read(kByteLevel);
  EXPECT_EQ(Encode(*encoder, "a<t>a<s>"), (Ids{{0, 12, 0, 7, 9, 10}}));
}

TEST_F(TextEncoderTest, VisibleSpecialTokensAreLikeOtherAddedTokens) {
  const auto encoder = Read(kByteLevel, {"<s>"});
  EXPECT_EQ(Encode(*encoder, "a<t>a<s>"), (Ids{{0, 12, 0, 11}}));
}

TEST_F(TextEncoderTest, SpacesAreMetaspaceAndUnknownCharactersBytes) {
  const auto encoder = Read(R"({
    "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}]},
    "model": {"type": "BPE", "byte_fallback": true,
              "vocab": {"▁": 0, "a": 1, "▁a": 2, "<0xC3>": 3, "<0xA9>": 4},
              "merges": ["▁ a"]}})");
  ASSERT_NE(encoder, nullptr);
  EXPECT_EQ(Encode(*encoder, "a aé "), (Ids{{1, 2, 3, 4, 0}})) << "nothing is put in front";
}

TEST_F(TextEncoderTest, OtherKindsAreNamed) {
  const std::string unigram = R"({"model": {"type": "Unigram", "vocab": [["a", 0.0]]}})";
  EXPECT_EQ(Read(unigram), nullptr);
  EXPECT_EQ(reason_, "model type \"Unigram\"");
}

TEST_F(TextEncoderTest, ADamagedFileIsALoadError) {
  EXPECT_THROW(Read(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [1]}})"), LoadError);
}

}  // namespace
}  // namespace mlc_native
