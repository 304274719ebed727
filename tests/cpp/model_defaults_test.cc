// ReadModelDefaults: what the files of a model folder say.
#include "checkpoint/model_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/error.h"
#include "testing/error_message.h"
#include "testing/temp_folder.h"

namespace mlc_native {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MessageOf;

class ModelDefaultsTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) { folder_.Write(name, text); }
  ModelDefaults Read() { return ReadModelDefaults(folder_.path()); }
  std::string Error(const std::string& field) {
    return MessageOf<LoadError>(field, [this] { Read(); });
  }

  const testing::TempFolder folder_;
};

TEST_F(ModelDefaultsTest, ConfigAlone) {
  Write("config.json", R"({"eos_token_id": 2})");
  const ModelDefaults defaults = Read();
  EXPECT_THAT(defaults.eos_token_ids, ElementsAre(2));
  EXPECT_EQ(defaults.generation.AsJSONString(), GenerationConfig().AsJSONString());
}

TEST_F(ModelDefaultsTest, NestedTextConfig) {
  Write("config.json", R"({"text_config": {"eos_token_id": [1, 106]}})");
  EXPECT_THAT(Read().eos_token_ids, ElementsAre(1, 106));
}

TEST_F(ModelDefaultsTest, GenerationConfigGoesFirst) {
  Write("config.json", R"({"eos_token_id": 2})");
  Write("generation_config.json",
        R"({"eos_token_id": [3, 4], "do_sample": true, "temperature": 0.6, "top_p": 0.95,
            "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1})");
  const ModelDefaults defaults = Read();
  EXPECT_THAT(defaults.eos_token_ids, ElementsAre(3, 4));
  EXPECT_DOUBLE_EQ(defaults.generation.temperature, 0.6);
  EXPECT_DOUBLE_EQ(defaults.generation.top_p, 0.95);
  EXPECT_EQ(defaults.generation.top_k, 20);
  EXPECT_DOUBLE_EQ(defaults.generation.min_p, 0.05);
  EXPECT_DOUBLE_EQ(defaults.generation.repetition_penalty, 1.1);
}

TEST_F(ModelDefaultsTest, SamplingIsIgnoredUnlessTheModelSamples) {
  Write("config.json", R"({"eos_token_id": 2})");
  Write("generation_config.json", R"({"temperature": 0.6, "top_k": 50})");
  EXPECT_EQ(Read().generation.AsJSONString(), GenerationConfig().AsJSONString());
  EXPECT_THAT(Read().eos_token_ids, ElementsAre(2));
}

TEST_F(ModelDefaultsTest, ModelsThatDoNotSampleAreGreedy) {
  Write("config.json", "{}");
  Write("generation_config.json",
        R"({"do_sample": false, "temperature": 0.6, "top_k": 50, "repetition_penalty": 1.2})");
  GenerationConfig greedy;
  greedy.temperature = 0;
  greedy.repetition_penalty = 1.2;
  EXPECT_EQ(Read().generation.AsJSONString(), greedy.AsJSONString());
}

TEST_F(ModelDefaultsTest, LengthsCount) {
  Write("config.json", "{}");
  Write("generation_config.json", R"({"max_new_tokens": 256, "min_new_tokens": 2})");
  EXPECT_EQ(Read().generation.max_tokens, 256);
  EXPECT_EQ(Read().generation.min_tokens, 2);
  Write("generation_config.json", R"({"max_new_tokens": null, "max_length": 20})");
  EXPECT_EQ(Read().generation.max_tokens, -1);
  Write("generation_config.json", R"({"max_new_tokens": -3})");
  EXPECT_THAT(Error("max_new_tokens"), HasSubstr("got -3"));
}

TEST_F(ModelDefaultsTest, NullsAndMinusOneAreNothing) {
  Write("config.json", R"({"eos_token_id": -1})");
  Write("generation_config.json", R"({"eos_token_id": null, "do_sample": true, "top_k": null})");
  EXPECT_THAT(Read().eos_token_ids, IsEmpty());
}

TEST_F(ModelDefaultsTest, DamageIsALoadErrorThatNamesTheFile) {
  EXPECT_THAT(Error("config.json"), HasSubstr("no model folder"));
  Write("config.json", R"({"eos_tok)");
  EXPECT_THAT(Error("config.json"), HasSubstr("not valid JSON"));
  Write("config.json", "[]");
  EXPECT_THAT(Error("config.json"), HasSubstr("JSON object"));
  Write("config.json", R"({"eos_token_id": "two"})");
  EXPECT_THAT(Error("eos_token_id"), HasSubstr("got \"two\""));
  Write("config.json", "{}");
  Write("generation_config.json", R"({"do_sample": true, "temperature": "hot"})");
  EXPECT_THAT(Error("temperature"), HasSubstr("must be a number"));
  Write("generation_config.json", R"({"do_sample": true, "top_p": 7})");
  EXPECT_THAT(Error("top_p"), HasSubstr("generation_config.json"));
  Write("generation_config.json", "{");
  EXPECT_THAT(Error("generation_config.json"), HasSubstr("not valid JSON"));
}

TEST(ModelDefaults, MissingFolder) {
  EXPECT_THAT(MessageOf<LoadError>("model", [] { ReadModelDefaults("/no/such/folder"); }),
              HasSubstr("/no/such/folder"));
}

}  // namespace
}  // namespace mlc_native
